"""A client's score of an answer."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.config.plain_words import plain_words
from headrace.errors import RequestError

_MOST_SCORE = 1e9


class Given(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/feedback."""

    request_id: Annotated[str, Meta(min_length=1, max_length=256)]
    score: float | bool
    """A number, or true and false for a thumb."""
    name: Annotated[str, Meta(min_length=1, max_length=64)] = "quality"
    comment: Annotated[str, Meta(max_length=4000)] = ""
    variant: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    """The client's own variant, if it runs A/B tests of its own; else the gateway's."""


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """A score, of which there is one for each request, name and key."""

    request_id: str
    name: str
    key: str
    """The key that gave it, "" where no keys are required."""
    score: float
    comment: str
    model: str
    target: str
    variant: str
    at_ms: int
    """When the request came, in Unix time."""
    given_ms: int
    """When the score came, in Unix time."""


def read_given(body: bytes) -> Given:
    """Raises RequestError naming the field at fault."""
    try:
        given = msgspec.json.decode(body, type=Given)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        told, _, at = str(error).partition(" - at `$.")
        field = at.rstrip("`") or None
        known = ", ".join(Given.__struct_fields__)
        raise RequestError(
            f"{field or 'the body'}: {plain_words(told, None, field or '')}; known are {known}",
            param=field,
            code="bad_feedback",
        ) from None
    if not math.isfinite(given.score) or abs(given.score) > _MOST_SCORE:
        raise RequestError(
            f"score: expected a number from -{_MOST_SCORE:.0f} to {_MOST_SCORE:.0f}",
            param="score",
            code="bad_feedback",
        )
    return given
