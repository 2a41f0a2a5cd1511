"""The files of a page that a server serves: found once, in the package, and known by their paths.

What is not among them cannot be requested, whatever a path looks like. Pages of several servers
import the files of `page/web`, which each serves below `shared/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from typing import NamedTuple

PAGE = "index.html"
SHARED = "shared/"

_MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}


class Asset(NamedTuple):
    """A file as it is sent."""

    content: bytes
    media_type: str
    """With the character set where the content is text."""


def page_assets(folder: Traversable, *, shared: bool) -> Mapping[str, Asset]:
    """The files of a page by their paths below its folder, `index.html` among them.

    shared: with those of `page/web`, as `shared/NAME`.
    """
    found = _below(folder, "")
    if shared:
        found |= _below(resources.files("headrace.page") / "web", SHARED)
    return found


def _below(folder: Traversable, path: str) -> dict[str, Asset]:
    found: dict[str, Asset] = {}
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        media_type = _MEDIA_TYPES.get(entry.name.rpartition(".")[2])
        if entry.is_dir():
            found |= _below(entry, f"{path}{entry.name}/")
        elif media_type is not None:
            found[path + entry.name] = Asset(entry.read_bytes(), media_type)
    return found
