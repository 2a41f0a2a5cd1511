"""What a request for completions wants that no chat can be told."""

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
            return "prompt", f"it has chat alone, and {kind} are no turn of one"
        return "prompt", "it has chat alone, which needs a text to answer"
    if extra.get("echo"):
        return "echo", "it has chat alone, which cannot give the prompt back"
    if extra.get("suffix"):
        return "suffix", "it has chat alone, which cannot write what stands before a text"
    if extra.get("logprobs") is not None:
        return "logprobs", "it has chat alone, whose log probabilities are of another form"
    best_of = extra.get("best_of")
    if isinstance(best_of, int) and best_of > (call.choices or 1):
        return "best_of", "it has chat alone, which cannot choose among several answers"
    if extra.get("max_tokens") == 0:
        return "max_tokens", "it has chat alone, which cannot read a prompt and write nothing"
    return None
