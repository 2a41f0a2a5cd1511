"""Features of a request that need a server which stores conversations."""

from __future__ import annotations

from headrace.protocol.dialects.openai_responses.values import DIALECT
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.part import Opaque

STATEFUL_FIELDS = ("previous_response_id", "conversation", "background", "prompt")
"""Fields that point to what the provider keeps; `background` has it keep the answer."""

_STATEFUL_ITEMS = ("item_reference", "compaction", "compaction_trigger")


def needs_state(call: ChatCall) -> tuple[str, ...]:
    """Fields of a request that have no meaning for providers of another dialect.

    "compaction" items hold the conversation so far, in a form that OpenAI alone can read.
    """
    if call.dialect != DIALECT:
        return ()
    fields = [name for name in STATEFUL_FIELDS if call.extra.get(name) not in (None, False)]
    kinds = {
        part.value.get("type") or "item_reference"
        for message in call.messages
        for part in message.parts
        if isinstance(part, Opaque) and "content_part" not in part.value
    }
    return (*fields, *(kind for kind in _STATEFUL_ITEMS if kind in kinds))


def without_state(field: str) -> str:
    """What a client can send instead of a field of `needs_state`."""
    if field == "background":
        return "it answers only while the client waits; omit it"
    if field == "prompt":
        return "it has no stored prompts; send the prompt's text as instructions and input"
    return "it does not store conversations; send the whole conversation as input"
