"""A match in a text: its kind and its position."""

from __future__ import annotations

import typing
from typing import Literal, NamedTuple

PiiKind = Literal["api_key", "email", "iban", "credit_card", "ip", "us_ssn", "phone"]

# Where findings overlap, the kind that comes first here is the better explanation: it has a check
# digit or a mark of its own, and what comes last is little more than a run of digits.
KINDS: tuple[PiiKind, ...] = typing.get_args(PiiKind)


class Span(NamedTuple):
    """A match of a kind: text[start:end]."""

    start: int
    end: int
    kind: PiiKind
