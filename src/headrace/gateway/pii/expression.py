"""Own expressions, in RE2's syntax: looking for them takes time linear in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol, cast

from headrace.errors import ConfigError, shown


class Expression(Protocol):
    """A compiled one."""

    def finditer(self, text: str, start: int, /) -> Iterator[re.Match[str]]:
        """Matches from `start` on, none within another."""

    def subn(self, replacement: str, text: str, /) -> tuple[str, int]:
        """The text with each match replaced, and how many there were."""


def expression_of(pattern: str) -> Expression:
    """Raises ConfigError for what RE2 does not read, for a pattern that finds the empty text, and
    where RE2 is not installed."""
    try:
        import re2
    except ImportError:
        raise ConfigError(
            "your own expressions need RE2, whose running time is bounded: pip install "
            "'headrace[guardrails]'"
        ) from None
    options = re2.Options()
    options.log_errors = False
    try:
        found = re2.compile(pattern, options)
    except re2.error as error:
        told = error.args[0] if error.args else ""
        told = told.decode(errors="replace") if isinstance(told, bytes) else str(told)
        raise ConfigError(
            f"{shown(pattern)}: {told}; RE2's syntax has no lookaround and no backreferences"
        ) from None
    if found.search("") is not None:
        raise ConfigError(f"{shown(pattern)}: it matches the empty text, which is everywhere")
    return cast("Expression", found)
