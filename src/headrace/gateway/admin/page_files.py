"""The page at `/` and the files it is made of, which are the same on every gateway."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import resources
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_START = "index.html"


def page_routes() -> list[Route]:
    """One route for each file of the page; no other file can be requested."""
    folder = resources.files("headrace.gateway.admin") / "page"
    return [
        Route("/" if path == _START else f"/{path}", _endpoint(file))
        for path, file in _files(folder, "")
    ]


def _files(folder: Traversable, path: str) -> list[tuple[str, Traversable]]:
    found: list[tuple[str, Traversable]] = []
    for one in sorted(folder.iterdir(), key=lambda each: each.name):
        if one.is_dir():
            found += _files(one, f"{path}{one.name}/")
        elif _kind(one) is not None:
            found.append((path + one.name, one))
    return found


def _kind(file: Traversable) -> str | None:
    return _TYPES.get("." + file.name.rpartition(".")[2])


def _endpoint(file: Traversable) -> Callable[[Request], Awaitable[Response]]:
    content, kind = file.read_bytes(), _kind(file)

    async def give(request: Request) -> Response:
        return Response(content, media_type=kind)

    return give
