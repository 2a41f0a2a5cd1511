"""The tools that may be offered and called."""

from __future__ import annotations

from fnmatch import fnmatchcase


class ToolRules:
    """Names and globs; deny wins over allow."""

    def __init__(self, allow: tuple[str, ...], deny: tuple[str, ...]) -> None:
        self._allow = allow
        self._deny = deny

    def __call__(self, names: tuple[str, ...]) -> str:
        """The problem with the first tool that is not allowed; "" if all are."""
        for name in names:
            denied = any(fnmatchcase(name, one) for one in self._deny)
            allowed = not self._allow or any(fnmatchcase(name, one) for one in self._allow)
            if denied or not allowed:
                return f"the tool {name[:100]!r} is not allowed"
        return ""
