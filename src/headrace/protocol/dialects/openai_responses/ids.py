"""Ids of responses and of their items, made from the id that the provider gave its answer.

Items that we name have "hr" in their ids. No provider knows such an id, so it is taken away again
when a client gives the item back.
"""

from __future__ import annotations

from typing import Literal

ItemPrefix = Literal["msg", "fc", "rs", "ig"]

_OURS = "_hr_"
# OpenAI takes ids of up to 64 characters.
_KEPT_CHARACTERS = 40


def response_id(reply_id: str, *, own: bool) -> str:
    """The id of the response object. own: the provider speaks this dialect, so its id is kept."""
    if reply_id and (own or reply_id.startswith("resp_")):
        return reply_id
    plain = "".join(
        character if character.isascii() and (character.isalnum() or character in "-_") else "-"
        for character in reply_id
    )
    return f"resp_{plain}"


def item_id(prefix: ItemPrefix, response: str, index: int) -> str:
    """The id of the item at `index` of a response's output."""
    base = response.removeprefix("resp_")[-_KEPT_CHARACTERS:]
    return f"{prefix}{_OURS}{base}_{index}"


def input_item_id(prefix: str, response: str, index: int) -> str:
    """The id of the item at `index` of the input that a response answers."""
    base = response.removeprefix("resp_")[-_KEPT_CHARACTERS:]
    return f"{prefix}{_OURS}{base}_in{index}"


def foreign_id(id: str) -> str | None:
    """`id` as its maker gave it; None if it is one of ours or none at all."""
    kind, mark, _ = id.partition(_OURS)
    ours = bool(mark) and kind in ("msg", "fc", "rs", "ig")
    return None if ours or not id else id
