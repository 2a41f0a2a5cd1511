"""Names of rows: how they are written, compared, and what is near to a mistyped one."""

from __future__ import annotations

import re
from collections.abc import Iterable

SLUG = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")


def plain(name: str) -> str:
    """What two ways to write one name have in common: "Claude Opus 4.6" is "claude-opus-4-6"."""
    return re.sub(r"[^a-z0-9]+", "-", name.casefold().replace("×", "x")).strip("-")


def near(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The names of `known` most like `name`, at most `count`; those that contain it come first."""
    import difflib

    names = sorted(set(known))
    wanted = plain(name)
    inside = [known_name for known_name in names if wanted and wanted in plain(known_name)]
    close = difflib.get_close_matches(wanted, names, n=count, cutoff=0.5)
    return list(dict.fromkeys([*sorted(inside, key=len), *close]))[:count]


def hint(name: str, known: Iterable[str]) -> str:
    """What an error about an unknown name adds: the nearest, or all that exist."""
    names = list(known)
    found = near(name, names, 1)
    if found:
        return f"did you mean {found[0]!r}?"
    return f"there are: {', '.join(names[:24])}"
