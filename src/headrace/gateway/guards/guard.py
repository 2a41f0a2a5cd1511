"""A guardrail: what it is given, what it may say, and what is done about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from headrace.gateway.guards.blocked import Action
from headrace.gateway.guards.looking import Step
from headrace.gateway.guards.text_span import TextSpan
from headrace.gateway.settings.guards import Role

Side = Literal["input", "output"]

NAMELESS = ""
"""In place of a name: what it does is part of another one's work, and told nowhere."""


class Subject(NamedTuple):
    """What a guardrail looks at. tools: of a request those it offers, of an answer those it calls.

    max_tokens: what the request allows the answer, None if it does not say. input_tokens: an
    estimate. key, team, organisation, user: who asks, "" where nobody is known.
    """

    on: Side
    passages: tuple[TextSpan, ...]
    request_id: str = ""
    dialect: str = ""
    model: str = ""
    tools: tuple[str, ...] = ()
    max_tokens: int | None = None
    input_tokens: int = 0
    key: str = ""
    team: str = ""
    organisation: str = ""
    user: str = ""


class Verdict(NamedTuple):
    """reason: what was found, in words for the client, never the found text itself; "" for nothing.

    texts: in place of those of the passages, in their order; None leaves them as they are.
    """

    reason: str = ""
    texts: tuple[str, ...] | None = None


NOTHING = Verdict()


class Match(NamedTuple):
    """text[start:end], what stands in its place if it is redacted, and what to call it."""

    start: int
    end: int
    replacement: str
    label: str


class Finder(Protocol):
    """Finds by looking at a text alone, so that streams can be looked at while they pass.

    window_chars: how far a match reaches at most. look_back_chars: what before a match counts.
    """

    @property
    def window_chars(self) -> int: ...

    @property
    def look_back_chars(self) -> int: ...

    def find(self, text: str, start: int) -> list[Match]:
        """Matches that begin at `start` or after it, in order and without overlaps; what is before
        it is what stands around them."""

    def find_each(self, texts: Iterable[str], step: Step) -> Iterator[list[Match]]:
        """Of each text what `find` finds in it from its beginning on."""

    def may_find(self, text: str) -> bool:
        """False only where nothing is found in JSON text, neither as it is written nor in a string
        or a number of it as that reads. Takes little time."""


Look = Callable[[Subject], Awaitable[Verdict]]
"""Looks at all of a request or an answer. Raises GuardFailedError."""


class GuardFailedError(Exception):
    """A guardrail came to no verdict; the text is for the log."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Guard:
    """One of finder, look, tools and tokens is there.

    roles: whose texts of a request it looks at, () for all. tools: says what is wrong with names
    of tools, "" if nothing is. most_tokens: of the prompt, or of what is allowed the answer.
    """

    name: str
    on: frozenset[Side]
    action: Action
    roles: tuple[Role, ...] = ()
    message: str | None = None
    restore: bool = False
    is_default: bool = False
    blocks_on_error: bool = True
    finder: Finder | None = None
    look: Look | None = None
    tools: Callable[[tuple[str, ...]], str] | None = None
    most_tokens: int | None = None

    @property
    def holds_texts(self) -> bool:
        """Whether it may keep a text from going on."""
        looks = self.finder is not None or self.look is not None
        return looks and self.action in ("block", "redact")
