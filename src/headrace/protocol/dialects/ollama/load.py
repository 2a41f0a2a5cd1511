"""Calls without messages, by which clients of Ollama have a model loaded or taken out of memory."""

from __future__ import annotations

from typing import Literal

from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.reply import ChatReply, Choice

_NOW = ("0", "0s", "0m", "0h", "0ms")


def load_reason(call: ChatCall) -> Literal["load", "unload"] | None:
    """The purpose of a call without messages; None for other calls. keep_alive 0 unloads."""
    if call.dialect != "ollama" or call.messages or call.instructions:
        return None
    keep_alive = call.extra.get("keep_alive")
    is_zero = isinstance(keep_alive, int | float) and not isinstance(keep_alive, bool)
    if (is_zero and keep_alive == 0) or keep_alive in _NOW:
        return "unload"
    return "load"


def load_reply(call: ChatCall) -> ChatReply:
    """The answer where nothing has to be loaded: a model served elsewhere is always there."""
    reason = load_reason(call) or "load"
    extra = {"ollama": {"done_reason": reason}}
    choice = Choice(finish="stop", extra=extra)
    return ChatReply(dialect="ollama", id="", model=call.model, choices=(choice,))
