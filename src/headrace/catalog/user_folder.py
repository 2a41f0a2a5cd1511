"""Where people keep their own rows: `headrace/catalog` under $XDG_CONFIG_HOME (~/.config)."""

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
    """The folders that override what ships: the user's own where it exists, then `named`.

    Raises ConfigError for an empty name.
    """
    for folder in named:
        if not folder.strip():
            raise ConfigError("--catalog '' is empty; give a folder, ./ for the current one")
    own = user_folder(environ)
    return (*((own,) if own.is_dir() else ()), *(Path(folder).expanduser() for folder in named))
