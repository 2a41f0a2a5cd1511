"""GET /openapi.json and /docs: what the server takes, for programs and for people.

The page is our own, in `server/pages`: it loads nothing from elsewhere and runs no inline script.
`--no-enable-docs` turns all of it off.
"""

from __future__ import annotations

import functools
from importlib import resources

import msgspec
from starlette.responses import Response
from starlette.routing import Route

from headrace.errors import shown
from headrace.server.api_error import ApiError
from headrace.server.call import Call

_TYPES = {
    "index.html": "text/html; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
}
# Everything from here and nothing from elsewhere, and no page of another site around it.
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


async def openapi(call: Call) -> Response:
    """The OpenAPI document of this server."""
    _check_enabled(call)
    config = call.state.config
    body = _document(
        tuple(
            (method, route.path)
            for route in call.http.app.routes
            if isinstance(route, Route) and route.include_in_schema
            for method in sorted((route.methods or set()) - {"HEAD"})
        ),
        bool(config.api_key),
        config.admin_api_key is not None,
        call.state.model_name,
    )
    return Response(body, media_type="application/json")


@functools.cache
def _document(
    routes: tuple[tuple[str, str], ...], client_key: bool, admin_key: bool, model: str
) -> bytes:
    from headrace.server.openapi import document

    told = document(routes, client_key=client_key, admin_key=admin_key, model=model)
    return msgspec.json.encode(told)


async def docs(call: Call) -> Response:
    """The page."""
    return _page(call, "index.html")


async def docs_file(call: Call) -> Response:
    """Its script or its style; 404 for others."""
    name = call.http.path_params["name"]
    if name == "index.html" or name not in _TYPES:
        raise _absent(call)
    return _page(call, name)


def _page(call: Call, name: str) -> Response:
    _check_enabled(call)
    return Response(_read(name), headers={**_HEADERS, "content-type": _TYPES[name]})


@functools.cache
def _read(name: str) -> bytes:
    return (resources.files("headrace.server") / "pages" / name).read_bytes()


def _check_enabled(call: Call) -> None:
    if not call.state.config.enable_docs:
        raise _absent(call)


def _absent(call: Call) -> ApiError:
    path = shown(call.http.scope["path"])
    return ApiError(404, f"{path} does not exist here", code="not_found")
