"""Where people keep rows of their own: `headrace/catalog` under $XDG_CONFIG_HOME (~/.config)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headrace.errors import ConfigError


def user_folder(environ: Mapping[str, str]) -> Path:
    """The folder, whether or not it is there (XDG Base Directory: a relative path is ignored)."""
    root = Path(environ.get("XDG_CONFIG_HOME", ""))
    if not root.is_absolute():
        root = Path(environ.get("HOME") or "~").expanduser() / ".config"
    return root / "headrace" / "catalog"


def folders(environ: Mapping[str, str], named: tuple[str, ...]) -> tuple[Path, ...]:
    """The folders that override what ships: the user's own where it is there, then `named`.

    Raises ConfigError for one without a name.
    """
    for one in named:
        if not one.strip():
            raise ConfigError("--catalog '' names no folder; write ./ for the one you are in")
    own = user_folder(environ)
    return (*((own,) if own.is_dir() else ()), *(Path(one).expanduser() for one in named))
