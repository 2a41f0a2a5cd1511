"""GET /openapi.json and /docs: what the server takes, for programs and for people.

`--no-enable-docs` turns all of it off.
"""

from __future__ import annotations

import functools

import msgspec
from starlette.responses import Response
from starlette.routing import Route

from headrace.server.call import Call
from headrace.server.routes.pages import check_enabled, page, page_file


async def openapi(call: Call) -> Response:
    """The OpenAPI document of this server."""
    check_enabled(call)
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
    from headrace.server.openapi.document import document

    schema = document(routes, client_key=client_key, admin_key=admin_key, model=model)
    return msgspec.json.encode(schema)


async def docs(call: Call) -> Response:
    """The page."""
    return page(call, "docs")


async def docs_file(call: Call) -> Response:
    """Its script or its style; 404 for others."""
    return page_file(call, "docs")
