"""cache_control in both directions, and the limit on how many a request may hold."""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.anthropic.request.fields import want_object, want_one_of
from headrace.protocol.neutral.part import CacheMark

MOST_MARKS = 4
"""Breakpoints of a request (Anthropic, "Prompt caching")."""

CONTROL = "cache_control"


def read_mark(block: dict[str, Any], path: str) -> CacheMark | None:
    """The mark of a block or a tool; raises RequestError for one that is not as it must be."""
    value = block.get(CONTROL)
    if value is None:
        return None
    at = f"{path}.{CONTROL}"
    control = want_object(value, at)
    want_one_of(control.get("type"), f"{at}.type", ("ephemeral",))
    ttl = control.get("ttl")
    if ttl is None:
        return CacheMark()
    return CacheMark("1h" if want_one_of(ttl, f"{at}.ttl", ("5m", "1h")) == "1h" else "5m")


def marked(block: dict[str, Any], mark: CacheMark | None) -> dict[str, Any]:
    """The block with its mark."""
    if mark is not None:
        block[CONTROL] = {"type": "ephemeral"}
        if mark.lifetime is not None:
            block[CONTROL]["ttl"] = mark.lifetime
    return block


def drop_earliest(body: dict[str, Any]) -> bool:
    """Take the earliest marks out of `body` until it holds no more than it may; whether any was.

    What comes later covers what came before it, so the last marks save the most.
    """
    holders = [tool for tool in body.get("tools", ()) if CONTROL in tool]
    if isinstance(system := body.get("system"), list):
        holders += [text_block for text_block in system if CONTROL in text_block]
    for message in body["messages"]:
        for block in message["content"]:
            if block.get("type") == "tool_result":
                holders += [
                    inner_block
                    for inner_block in block.get("content", ())
                    if CONTROL in inner_block
                ]
            if CONTROL in block:
                holders.append(block)
    spare = holders[: max(0, len(holders) + (CONTROL in body) - MOST_MARKS)]
    for holder in spare:
        del holder[CONTROL]
    return bool(spare)
