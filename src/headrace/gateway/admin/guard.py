"""Who reaches the admin API: whoever has its key, through a page of its own.

A page of another site must not reach it through the browser of an administrator: its name has to be
one that nobody else can point here (`Host`), and what a browser sends has to come from our own page
(`Origin`, `Sec-Fetch-Site`). There are no cookies, so that nothing is sent by itself. This file
logs nothing.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from hashlib import sha256
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.gateway.access import presented_key
from headrace.gateway.admin.errors import AdminError
from headrace.gateway.admin.reply import SECURITY, error_reply
from headrace.gateway.admin.tries import Tries
from headrace.gateway.settings.secret import Secret
from headrace.http.host_names import HostNames

API = "/api/"
_OWN_SITES = ("same-origin", "none")


class Guard:
    """An ASGI app that checks the key, the host and the origin before it passes requests to `app`.

    key: None where none is required. hosts: names it may be reached by, in addition to addresses.
    """

    def __init__(
        self, app: ASGIApp, key: Secret | None, hosts: Iterable[str], tries: Tries
    ) -> None:
        self._app = app
        self._digest = None if key is None else sha256(key.reveal().encode()).digest()
        self._hosts = HostNames.of(hosts, "admin.hosts")
        self._tries = tries

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it; all replies get the headers of SECURITY."""
        if scope["type"] != "http":
            return

        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [(name.encode(), value.encode()) for name, value in SECURITY.items()]
                message = {**message, "headers": [*message["headers"], *headers]}
            await send(message)

        try:
            self._check(scope)
        except AdminError as error:
            await error_reply(error)(scope, receive, secured)
            return
        await self._app(scope, receive, secured)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        foreign = self._hosts.refusal(headers.get("host", ""))
        if foreign is not None:
            raise AdminError(403, foreign, "unknown_host")
        _check_origin(headers)
        if self._digest is None or not scope["path"].startswith(API):
            return
        # The right key is looked for first: whoever sends wrong ones from an address, which may be
        # a proxy's, does not lock out the administrators behind it.
        key = presented_key(headers)
        # Digests have one length, so that the time says nothing of the key.
        given = sha256(key.encode("latin-1", errors="replace")).digest()
        if key and hmac.compare_digest(given, self._digest):
            return
        address = (scope.get("client") or ("",))[0]
        if wait_s := self._tries.wait_s(address):
            raise AdminError(
                429, f"too many wrong keys came from {address}; without the right one requests "
                    f"from there are refused for {wait_s:.0f} s", "too_many_tries",
                retry_after_s=wait_s,
            )  # fmt: skip
        if not key:
            raise AdminError(
                401, "no key was sent; the admin API needs its own (admin.key of the gateway's "
                "file): Authorization: Bearer KEY", "no_key",
            )  # fmt: skip
        self._tries.failed(address)
        raise AdminError(401, "the key that was sent is not the admin key", "wrong_key")


def _check_origin(headers: Mapping[str, str]) -> None:
    site = headers.get("sec-fetch-site", "none")
    origin = headers.get("origin")
    is_own = origin is None or _place_of(origin) == headers.get("host", "").casefold()
    # A link on another site may open the page; what it asks for then is told to the page alone.
    opens = headers.get("sec-fetch-mode") == "navigate"
    if not is_own or (site not in _OWN_SITES and not opens):
        raise AdminError(
            403, "this request came from a page of another site; only the admin page itself may "
                "send it",
            "foreign_origin",
        )  # fmt: skip


def _place_of(origin: str) -> str | None:
    """Name and port of an Origin header; None for what is none."""
    try:
        return urlsplit(origin).netloc.casefold()
    except ValueError:  # "http://["
        return None
