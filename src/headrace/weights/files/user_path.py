"""Paths as people write them."""

from __future__ import annotations

from pathlib import Path


def user_path(text: str | Path) -> Path:
    """`text` as a path, a leading ~ or ~name as that home; as written where nobody has one."""
    path = Path(text)
    try:
        return path.expanduser()
    except RuntimeError:
        return path
