"""The page at `/` and the files it is made of, which are the same on every gateway."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.page.assets import PAGE, Asset, page_assets


def page_routes() -> list[Route]:
    """One route for each file of the page; no other file can be requested."""
    folder = resources.files("headrace.gateway.admin") / "page"
    return [
        Route("/" if path == PAGE else f"/{path}", _endpoint(asset))
        for path, asset in page_assets(folder, shared=True).items()
    ]


def _endpoint(asset: Asset) -> Callable[[Request], Awaitable[Response]]:
    async def give(request: Request) -> Response:
        return Response(asset.content, media_type=asset.media_type)

    return give
