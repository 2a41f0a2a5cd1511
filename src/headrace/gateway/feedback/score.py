"""What somebody says of an answer."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.config.plain_words import plain_words
from headrace.errors import RequestError

_MOST_SCORE = 1e9


class Given(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/feedback. score: a number, or true and false for a thumb. variant: of
    who runs A/B tests of their own; else the gateway's."""

    request_id: Annotated[str, Meta(min_length=1, max_length=256)]
    score: float | bool
    name: Annotated[str, Meta(min_length=1, max_length=64)] = "quality"
    comment: Annotated[str, Meta(max_length=4000)] = ""
    variant: Annotated[str, Meta(min_length=1, max_length=128)] | None = None


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """One for each request, name and key. key: who gave it, "" where no keys are asked for. at_ms:
    when the request came, given_ms: the score; Unix time."""

    request_id: str
    name: str
    key: str
    score: float
    comment: str
    model: str
    target: str
    variant: str
    at_ms: int
    given_ms: int


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
