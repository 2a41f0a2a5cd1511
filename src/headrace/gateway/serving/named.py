"""What a provider's answer does not say and clients expect: a model, an id, a time."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headrace.protocol.neutral.event import Began, Event
from headrace.protocol.neutral.reply import ChatReply


class Names:
    """Stand in where the provider said nothing (Bedrock and Cohere tell no model)."""

    def __init__(self, model: str, id: str, created_s: int) -> None:
        self._model = model
        self._id = id
        self._created_s = created_s

    def reply(self, reply: ChatReply) -> ChatReply:
        """A whole answer."""
        return msgspec.structs.replace(
            reply,
            model=reply.model or self._model,
            id=reply.id or self._id,
            created_s=reply.created_s or self._created_s,
        )

    def events(self, events: Iterable[Event]) -> list[Event]:
        """Events of a stream."""
        return [
            msgspec.structs.replace(
                event,
                model=event.model or self._model,
                id=event.id or self._id,
                created_s=event.created_s or self._created_s,
            )
            if isinstance(event, Began)
            else event
            for event in events
        ]
