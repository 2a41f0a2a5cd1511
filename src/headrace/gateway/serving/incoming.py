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
    """The operation that requests of a dialect stand for."""
    return "text_completion" if dialect == "openai-completions" else "chat"


@dataclass(frozen=True, kw_only=True, slots=True)
class Incoming:
    """A client's request."""

    id: str
    side: ClientSide
    path: str
    headers: Mapping[str, str]
    """Names are in lower case."""
    body: JsonObject
    model: str
    stream: bool
    """Whether the answer is streamed."""
    received_ns: int
    """When it arrived, on the monotonic clock."""
    caller: Caller | None
    """The account it is charged to; None if keys are not required."""
    prompt: str = ""
    """The configured prompt it was made with, as "name@version"; "" for none."""

    @property
    def operation(self) -> Operation:
        """The operation it stands for."""
        return operation_of(self.side.name)


class Sink(Protocol):
    """The way back to the client. Call `start`, `write` any number of times, `end` or `last`.

    Writing to a client that has gone raises ClientGoneError, at the latest with the next piece.
    """

    async def start(self, status: int, headers: list[tuple[str, str]]) -> None:
        """Send status and headers; no other target can be tried afterwards."""

    async def write(self, piece: bytes) -> None:
        """Send a piece of the body; waits while the client does not read."""

    async def last(self, piece: bytes) -> None:
        """Send a piece and end the body."""

    async def end(self) -> None:
        """End the body."""


class ClientGoneError(Exception):
    """The client is not reading the answer any more."""
