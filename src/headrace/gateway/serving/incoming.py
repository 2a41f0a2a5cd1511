"""A request as a client sent it, and where its answer goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from headrace.gateway.accounts.caller import Caller
from headrace.gateway.serving.entry import Operation
from headrace.protocol.json_object import JsonObject
from headrace.protocol.neutral.dialect import ClientSide


def operation_of(dialect: str) -> Operation:
    """What clients of a dialect ask for."""
    return "text_completion" if dialect == "openai-completions" else "chat"


@dataclass(frozen=True, kw_only=True, slots=True)
class Incoming:
    """received_ns: of a monotonic clock. headers: names in lower case. stream: whether it is
    answered by one. caller: whose account it goes on, None where nobody has one. prompt: the
    template it was made with, as "name@version"; "" for none."""

    id: str
    side: ClientSide
    path: str
    headers: Mapping[str, str]
    body: JsonObject
    model: str
    stream: bool
    received_ns: int
    caller: Caller | None
    prompt: str = ""

    @property
    def operation(self) -> Operation:
        """What is asked for."""
        return operation_of(self.side.name)


class Sink(Protocol):
    """The way back to the client. After `start`, `write` any number of times, then `end` or `last`.

    Writing to a client that has gone raises ClientGoneError, at the latest at the next piece.
    """

    async def start(self, status: int, headers: list[tuple[str, str]]) -> None:
        """Status and headers; nothing can be tried again after it."""

    async def write(self, piece: bytes) -> None:
        """Some of the body; waits while the client does not take it."""

    async def last(self, piece: bytes) -> None:
        """As `write` and then `end`, in one go."""

    async def end(self) -> None:
        """The body is whole."""


class ClientGoneError(Exception):
    """Nobody reads the answer any more."""
