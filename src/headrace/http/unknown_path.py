"""What is said of a path that no endpoint has.

Nearly always a client was pointed there: by a base URL without `/v1`, or with it twice, a slash
too many, or a letter. The path is a stranger's, so a long one is not compared.
"""

from __future__ import annotations

import difflib

from headrace.errors import shown

# Where a client's base URL is joined with what it asks for.
PREFIX = "/v1"
# No known path has half as many characters.
_MOST_COMPARED = 64


def unknown_path(path: str, known: frozenset[str], *, docs: bool) -> str:
    """The message of a 404. known: the paths to suggest. docs: whether /docs is answered."""
    message = f"{shown(path)} does not exist here"
    near = _nearest(path, known)
    if near is not None:
        return f"{message}; did you mean {near}?"
    return f"{message}; GET /docs lists the paths that do" if docs else message


def _nearest(path: str, known: frozenset[str]) -> str | None:
    if len(path) > _MOST_COMPARED:
        return None
    path = path.rstrip("/")
    candidates = (path, PREFIX + path, path.removeprefix(PREFIX))
    exact = [candidate for candidate in candidates if candidate in known]
    close = (difflib.get_close_matches(one, sorted(known), 1, cutoff=0.9) for one in candidates)
    return next(iter([*exact, *(one for found in close for one in found)]), None)
