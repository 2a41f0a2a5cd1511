"""How large a chat template and how much work one rendering of it may be, and the count of it.

A template is code that came with a file. A step is one loop turn, call, filter or operator;
handling text or a list costs a step for every so many characters or items, which bounds memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.errors import TemplateError

MAX_SOURCE_BYTES = 256 * 2**10
"""Of a template's text. The largest of known models has 19 kB; the rest is for examples within."""
MAX_NODES = 16_384
"""Of a template's syntax tree, ten times the largest known. Compiling so many takes half a second;
far more of them take a minute and gigabytes."""

# One step's worth of text or items: handling them costs about as much as one call in a template.
CHARS_PER_STEP = 64
ITEMS_PER_STEP = 8
# A number, a bracket or a comma when printed.
_CHARS_PER_ITEM = 8
_STEPS_PER_CLOCK = 1024


@dataclass(frozen=True)
class RenderLimits:
    """The defaults fit a chat of millions of characters and thousands of messages."""

    max_chars: int = 16_000_000
    """Of the result and of any string on the way."""
    max_steps: int = 5_000_000
    """Loop turns, calls and operators."""
    max_seconds: float = 10.0
    """A last resort on the clock."""
    max_items: int = 1_000_000
    """Of one list made by a template."""
    max_number: int = 100_000
    """Of a width, count or exponent given to a method or filter."""


def check_source(source: str, what: str) -> None:
    """Raise TemplateError for a template too long to be parsed. `what` names it."""
    size = len(source.encode("utf-8", "replace"))
    if size > MAX_SOURCE_BYTES:
        raise TemplateError(f"{what} has {size} bytes; at most {MAX_SOURCE_BYTES} are allowed")


def check_nodes(count: int, what: str) -> None:
    """Raise TemplateError for a syntax tree too large to be compiled. `what` names the template."""
    if count > MAX_NODES:
        raise TemplateError(
            f"{what} has {count} expressions and statements; at most {MAX_NODES} are allowed"
        )


class Budget:
    """The rest of one rendering's limits; `monotonic` is a clock in seconds."""

    __slots__ = ("_deadline", "_monotonic", "_steps", "_until_clock", "limits")

    def __init__(
        self, limits: RenderLimits, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits = limits
        self._steps = limits.max_steps
        self._monotonic = monotonic
        self._deadline = monotonic() + limits.max_seconds
        self._until_clock = _STEPS_PER_CLOCK

    def charge(self, steps: int = 1) -> None:
        """Count work. Raises TemplateError when there was too much of it."""
        self._steps -= steps
        if self._steps < 0:
            raise TemplateError(
                f"the chat template does more than {self.limits.max_steps} steps; it loops "
                "too much for these messages"
            )
        self._until_clock -= steps
        if self._until_clock < 0:
            self._until_clock = _STEPS_PER_CLOCK
            if self._monotonic() > self._deadline:
                raise TemplateError(
                    f"the chat template took longer than {self.limits.max_seconds} s"
                )

    def charge_chars(self, count: int) -> None:
        """Count the making of a string. Raises TemplateError when it is too long."""
        self.check_chars(count)
        self.charge(1 + count // CHARS_PER_STEP)

    def check_chars(self, count: int) -> None:
        """Raise TemplateError for a text of more than max_chars characters."""
        if count > self.limits.max_chars:
            raise TemplateError(
                f"the chat template makes a text of {count} characters; at most "
                f"{self.limits.max_chars} are allowed"
            )

    def charge_items(self, count: int) -> None:
        """Count the making of a list. Raises TemplateError when it is too long."""
        if count > self.limits.max_items:
            raise TemplateError(
                f"the chat template makes a list of {count} items; at most "
                f"{self.limits.max_items} are allowed"
            )
        self.charge(1 + count // ITEMS_PER_STEP)

    def charge_value(self, value: Any) -> None:
        """Count a value by its own length, not by what it holds."""
        if isinstance(value, str):
            self.charge_chars(len(value))
        elif isinstance(value, (list, tuple, dict, set, frozenset)):
            self.charge_items(len(value))
        else:
            self.charge()

    def charge_tree(self, value: Any) -> int:
        """Count a value with everything it holds, as often as it holds it: what printing or
        comparing it costs. A list of a list twice of a list twice … is small and prints long.
        Gives about how many characters it prints."""
        if isinstance(value, str):
            self.charge_chars(len(value))
            return len(value)
        pending = [value]
        chars = 0
        while pending:
            item = pending.pop()
            if isinstance(item, str):
                chars += len(item)
                if chars > self.limits.max_chars:
                    self.charge_chars(chars)
                continue
            chars += _CHARS_PER_ITEM
            if isinstance(item, dict):
                self.charge_items(len(item))
                pending += item.keys()
                pending += item.values()
            elif isinstance(item, (list, tuple, set, frozenset)):
                self.charge_items(len(item))
                pending += item
        self.charge_chars(chars)
        return chars

    def check_number(self, value: Any) -> None:
        """Raise TemplateError for an int too large to be a width, a count or an exponent."""
        if isinstance(value, int) and abs(value) > self.limits.max_number:
            raise TemplateError(
                f"the chat template uses the number {value} as a width or count; at most "
                f"{self.limits.max_number} is allowed"
            )
