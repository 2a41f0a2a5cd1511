"""Who may call: keys of clients, and one of administrators.

Every path needs a key but GET /health (also as /ping) and /ready, which load balancers ask, the
greeting of / and /v1, and the pages of / and /docs, which are the same on every server. What needs
a key is decided before any body is read. Keys are kept and compared as SHA-256 digests, each with
each, so that the time a comparison takes says nothing of them. This file logs nothing.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.config.server_settings import ServerConfig
from headrace.errors import ConfigError
from headrace.http.headers import REQUEST_ID, request_id_from
from headrace.server.api_error import ApiError
from headrace.server.dialects.dialect_paths import error_at

OPEN_PATHS = frozenset({"/health", "/ping", "/ready", "/", "/v1", "/v1/", "/docs"})
# A browser requests the pages' files without a key; what the pages show and send needs one.
OPEN_BELOW = ("/docs/", "/page/")
ADMIN = "/admin"

# Anthropic's clients send their key in a header of its own.
_KEY_HEADER = b"x-api-key"
# Where a scope says which key it came with, never the key itself.
_KEY = "headrace.key"
_DIGEST = "headrace.key_digest"


class KeyRing:
    """A set of keys, as digests only."""

    def __init__(self, keys: Iterable[str], flag: str) -> None:
        """flag: where they come from, for the ConfigError about one no header can carry."""
        self._digests = []
        for number, key in enumerate(keys, 1):
            if not all("!" <= letter <= "~" for letter in key):
                raise ConfigError(
                    f"{flag}: key {number} has characters that are not visible ASCII, which a "
                    "header cannot carry; use letters, digits and punctuation without spaces"
                )
            self._digests.append(hashlib.sha256(key.encode()).digest())

    def __bool__(self) -> bool:
        return bool(self._digests)

    def __repr__(self) -> str:
        return f"KeyRing({len(self._digests)} keys)"

    def digest(self, number: int) -> bytes:
        """The digest of the key of a number that `find` returned."""
        return self._digests[number - 1]

    def find(self, candidates: Iterable[bytes]) -> int | None:
        """The number of the last of ours that is among them, from 1, or None; all are looked at,
        whatever is found. A key that is there twice has one number."""
        found = None
        for candidate in candidates:
            digest = hashlib.sha256(candidate).digest()
            for number, known in enumerate(self._digests, 1):
                found = number if hmac.compare_digest(digest, known) else found
        return found


def keys_in(headers: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    """What a request offers as keys: `Authorization: Bearer KEY` and `x-api-key: KEY`."""
    offered = []
    for name, value in headers:
        if name == b"authorization":
            scheme, _, key = value.strip().partition(b" ")
            if scheme.lower() == b"bearer":
                offered.append(key.strip())
        elif name == _KEY_HEADER:
            offered.append(value.strip())
    return offered


class KeyGuard:
    """ASGI app that lets calls with a key through to `app`.

    The admin key opens everything. Without keys in the settings every path is open but those below
    /admin, which are closed without an admin key. `refused` hears of each refusal: the call's
    scope, the status and the request's id.
    """

    def __init__(
        self,
        app: ASGIApp,
        config: ServerConfig,
        *,
        new_id: Callable[[], str],
        refused: Callable[[Scope, int, str], None],
    ) -> None:
        self._app = app
        self._keys = KeyRing(config.api_key, "--api-key")
        admin_keys = () if config.admin_api_key is None else (config.admin_api_key,)
        self._admin_keys = KeyRing(admin_keys, "--admin-api-key")
        self._new_id = new_id
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the call on, or answer it with 401 or 403."""
        try:
            scope[_KEY], scope[_DIGEST] = self._key(scope)
        except ApiError as error:
            refusal = error
        else:
            await self._app(scope, receive, send)
            return
        given = Request(scope).headers.get(REQUEST_ID)
        request_id = request_id_from(given, self._new_id())
        self._refused(scope, refusal.status, request_id)
        await error_at(scope["path"], refusal, request_id)(scope, receive, send)

    def _key(self, scope: Scope) -> tuple[str, bytes]:
        """What its key is called here and the key's digest, "" and b"" where it needs none. Raises
        ApiError where it needs one that it lacks."""
        path: str = scope["path"]
        is_open = path in OPEN_PATHS or path.startswith(OPEN_BELOW)
        if is_open and scope["method"] in ("GET", "HEAD"):
            return "", b""
        admin = path == ADMIN or path.startswith(ADMIN + "/")
        if admin and not self._admin_keys:
            raise ApiError(
                403,
                f"the paths below {ADMIN} are disabled; start the server with --admin-api-key",
                code="admin_closed",
            )
        if not admin and not self._keys:
            return "", b""
        offered = keys_in(scope["headers"])
        admin_number = self._admin_keys.find(offered)
        number = self._keys.find(offered)
        if admin_number is not None:
            return "admin", self._admin_keys.digest(admin_number)
        if number is not None and not admin:
            return str(number), self._keys.digest(number)
        raise _unauthorized(offered, admin=admin)


def key_of(scope: Scope) -> str:
    """What the key of a call is called that KeyGuard let through: its number among the clients'
    keys, or "admin"; "" where it needed none."""
    key: str = scope.get(_KEY, "")
    return key


def key_digest_of(scope: Scope) -> bytes:
    """The digest of the key of a call that KeyGuard let through; b"" where it needed none. Unlike
    its number it stays when other keys come and go."""
    digest: bytes = scope.get(_DIGEST, b"")
    return digest


def _unauthorized(offered: list[bytes], *, admin: bool) -> ApiError:
    key = "the admin key (--admin-api-key)" if admin else "an API key"
    wrong = "is not the admin key" if admin else "is not one of this server's"
    message = (
        f"the key sent {wrong}; this path needs {key}: Authorization: Bearer KEY"
        if offered
        else f"no key was sent; this path needs {key}: Authorization: Bearer KEY"
    )
    headers = {"www-authenticate": 'Bearer realm="headrace"'}
    return ApiError(401, message, code="invalid_api_key", headers=headers)
