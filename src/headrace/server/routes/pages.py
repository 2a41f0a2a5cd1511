"""GET /page/{name}, and what all pages for browsers have in common: their files and their headers.

The pages are our own, in `server/pages` and `page/web`: they load nothing from elsewhere and run no
inline script. They are the same on every server, so they need no key; what they request does.
`--no-enable-docs` turns all of them off.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import resources
from typing import Literal

from starlette.responses import Response

from headrace.errors import shown
from headrace.page.assets import PAGE, Asset, page_assets
from headrace.server.api_error import ApiError
from headrace.server.call import Call

PageName = Literal["chat", "docs"]

# Everything from here and nothing from elsewhere, and no page of another site around it.
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


def page(call: Call, name: PageName) -> Response:
    """The document of a page. Raises ApiError 404 where pages are turned off."""
    return _reply(call, _assets(name).get(PAGE))


def page_file(call: Call, name: PageName) -> Response:
    """The file of a page that the call's path names. Raises ApiError 404 where there is none."""
    path = call.http.path_params["name"]
    return _reply(call, None if path == PAGE else _assets(name).get(path))


async def chat_file(call: Call) -> Response:
    """A script, a style or the icon of the chat page; 404 for others."""
    return page_file(call, "chat")


@functools.cache
def _assets(name: PageName) -> Mapping[str, Asset]:
    folder = resources.files("headrace.server") / "pages" / name
    return page_assets(folder, shared=name == "chat")


def check_enabled(call: Call) -> None:
    """Raise ApiError 404 where pages are turned off."""
    if not call.state.config.enable_docs:
        raise _absent(call)


def _reply(call: Call, asset: Asset | None) -> Response:
    check_enabled(call)
    if asset is None:
        raise _absent(call)
    return Response(asset.content, headers={**_HEADERS, "content-type": asset.media_type})


def _absent(call: Call) -> ApiError:
    path = shown(call.http.scope["path"])
    return ApiError(404, f"{path} does not exist here", code="not_found")
