"""Features of a completions request that chat cannot provide."""

from __future__ import annotations

from headrace.protocol.dialects.openai_completions.values import DIALECT
from headrace.protocol.neutral.call import ChatCall


def beyond_chat(call: ChatCall) -> tuple[str, str] | None:
    """The field, and why only a provider of this API can serve it; None if a chat may."""
    if call.dialect != DIALECT:
        return None
    extra = call.extra
    if not call.messages:
        given = extra.get("prompt")
        if isinstance(given, list) and given:
            kind = "several prompts" if isinstance(given[0], str) else "token ids"
            return "prompt", f"it has only chat, and {kind} are not a chat turn"
        return "prompt", "it has only chat, which needs a text to answer"
    if extra.get("echo"):
        return "echo", "it has only chat, which cannot echo the prompt"
    if extra.get("suffix"):
        return "suffix", "it has only chat, which cannot fill in text before a suffix"
    if extra.get("logprobs") is not None:
        return "logprobs", "it has only chat, whose log probabilities have another form"
    best_of = extra.get("best_of")
    if isinstance(best_of, int) and best_of > (call.choices or 1):
        return "best_of", "it has only chat, which cannot choose the best of several answers"
    if extra.get("max_tokens") == 0:
        return "max_tokens", "it has only chat, which cannot read a prompt without writing"
    return None
