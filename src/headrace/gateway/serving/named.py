"""What clients expect of an answer and a provider may leave out: a model, an id, a time."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headrace.protocol.neutral.event import Event, ReplyStart
from headrace.protocol.neutral.reply import ChatReply


class Names:
    """Values that stand in for missing ones (Bedrock and Cohere name no model)."""

    def __init__(self, model: str, id: str, created_s: int) -> None:
        self._model = model
        self._id = id
        self._created_s = created_s

    def reply(self, reply: ChatReply) -> ChatReply:
        """The reply with the missing values."""
        return msgspec.structs.replace(
            reply,
            model=reply.model or self._model,
            id=reply.id or self._id,
            created_s=reply.created_s or self._created_s,
        )

    def events(self, events: Iterable[Event]) -> list[Event]:
        """The events with the missing values."""
        return [
            msgspec.structs.replace(
                event,
                model=event.model or self._model,
                id=event.id or self._id,
                created_s=event.created_s or self._created_s,
            )
            if isinstance(event, ReplyStart)
            else event
            for event in events
        ]
