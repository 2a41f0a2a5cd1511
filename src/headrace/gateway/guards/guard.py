"""A guardrail: what it is given, what it may say, and what is done about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from headrace.gateway.guards.action import Action
from headrace.gateway.guards.looking import Step
from headrace.gateway.guards.text_span import TextSpan
from headrace.gateway.settings.guards import Role

Side = Literal["input", "output"]

NAMELESS = ""
"""Instead of a name: the guardrail is a part of another one, and its actions are not reported."""


class Subject(NamedTuple):
    """The request or answer that a guardrail checks."""

    on: Side
    passages: tuple[TextSpan, ...]
    request_id: str = ""
    dialect: str = ""
    model: str = ""
    tools: tuple[str, ...] = ()
    """For a request the tools it offers, for an answer those it calls."""
    max_tokens: int | None = None
    """The length that the request allows the answer, None if it sets none."""
    input_tokens: int = 0
    """An estimate."""
    key: str = ""
    """The caller, as team, organisation and user are; "" where unknown."""
    team: str = ""
    organisation: str = ""
    user: str = ""


class Verdict(NamedTuple):
    """The result of a check."""

    reason: str = ""
    """What was found, in words for the client, never the matched text itself; "" for nothing."""
    texts: tuple[str, ...] | None = None
    """Replacements for the texts of the spans, in order; None leaves them unchanged."""


NOTHING = Verdict()


class Match(NamedTuple):
    """A match, text[start:end], with its replacement if it is redacted, and its label."""

    start: int
    end: int
    replacement: str
    label: str


class Finder(Protocol):
    """A finder that looks only at the text itself, so that streams can be checked on the way.

    window_chars: the longest reach of a match. look_back_chars: how many characters before a match
    matter.
    """

    @property
    def window_chars(self) -> int: ...

    @property
    def look_back_chars(self) -> int: ...

    def find(self, text: str, start: int) -> list[Match]:
        """Matches that begin at `start` or after it, in order and without overlaps; the text before
        it is context."""

    def find_each(self, texts: Iterable[str], step: Step) -> Iterator[list[Match]]:
        """The matches of `find` in each text, from its beginning."""

    def may_find(self, text: str) -> bool:
        """False only where nothing is found in JSON text, neither as it is written nor in a string
        or a number of it as that reads. Takes little time."""


Look = Callable[[Subject], Awaitable[Verdict]]
"""Looks at all of a request or an answer. Raises GuardFailedError."""


class GuardFailedError(Exception):
    """A guardrail came to no verdict; the text is for the log."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Guard:
    """A guardrail, with exactly one of finder, look, tools and most_tokens."""

    name: str
    on: frozenset[Side]
    action: Action
    roles: tuple[Role, ...] = ()
    """Roles whose texts of a request are checked, () for all."""
    message: str | None = None
    restore: bool = False
    is_default: bool = False
    blocks_on_error: bool = True
    finder: Finder | None = None
    look: Look | None = None
    tools: Callable[[tuple[str, ...]], str] | None = None
    """Returns what is wrong with a list of tool names, "" for nothing."""
    most_tokens: int | None = None
    """Of the prompt, or of what the request allows the answer."""

    @property
    def holds_texts(self) -> bool:
        """Whether it may keep a text from going on."""
        looks = self.finder is not None or self.look is not None
        return looks and self.action in ("block", "redact")
