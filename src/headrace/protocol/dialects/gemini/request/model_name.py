"""What the name of a Gemini model shows of its features.

    gemini-3-pro-preview  -> (3, 0)      gemini-2.5-flash  -> (2, 5)
    gemini-flash-latest   -> the newest  gemini-pro        -> (1, 0)
    models/gemini-3.1-pro -> (3, 1)      gemma-3-27b, a tuned model's number -> None

A name of Google's that fits no pattern is taken for one of the newest: a generation that knows
less is never named anew.
"""

from __future__ import annotations

from typing import Literal

Generation = tuple[int, int]
_NEWEST: Generation = (99, 0)
_OLDEST_NAMES = ("gemini-pro", "gemini-pro-vision", "gemini-ultra")


def generation(model: str) -> Generation | None:
    """Major and minor number; None for what is not named as a Gemini model."""
    name = _plain(model)
    if not name.startswith("gemini-"):
        return None
    if name in _OLDEST_NAMES:
        return (1, 0)
    for piece in name.split("-")[1:]:
        major, dot, minor = piece.partition(".")
        if _is_number(major) and (not dot or _is_number(minor)):
            return int(major), int(minor or 0)
    return _NEWEST


def is_pro(model: str) -> bool:
    """Whether it is of the large kind, which cannot stop thinking."""
    return "-pro" in _plain(model)


def validates_signatures(model: str) -> bool:
    """Whether a function call without its thoughtSignature is refused (400, INVALID_ARGUMENT).

    Gemini 3 and later do, even at thinkingLevel "minimal"; its image models do not. Source:
    ai.google.dev/gemini-api/docs/thought-signatures and the same page of Vertex AI.
    """
    known = generation(model)
    return known is not None and known >= (3, 0) and "image" not in _plain(model)


def takes_media_in_results(model: str) -> bool:
    """Whether a functionResponse may hold pictures and documents: Gemini 3 and later."""
    known = generation(model)
    return known is not None and known >= (3, 0)


def thinking_kind(model: str) -> Literal["none", "budget", "level"]:
    """Whether thinking is set by a level (Gemini 3), by a budget (2.5), or not at all."""
    known = generation(model)
    if known is None or known < (2, 5):
        return "none"
    return "level" if known >= (3, 0) else "budget"


def _plain(model: str) -> str:
    return model.rpartition("/")[2].lower()


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 2
