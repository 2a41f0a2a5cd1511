"""What the command and its client processes say to one another over pipes: MessagePack, framed.

Keys of endpoints go this way and no other: they stand on no command line and in no environment.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec

from headrace.bench.load.client_run import ClientJob, ClientOutcome
from headrace.bench.load.progress import Progress
from headrace.bench.load.runner import Ending

_LENGTH_BYTES = 8


class Start(msgspec.Struct, frozen=True, tag=True):
    """Parent to client: the job to do."""

    job: ClientJob


class Go(msgspec.Struct, frozen=True, tag=True):
    """Parent to a ready client: begin at this time of the machine's monotonic clock."""

    origin_ns: int


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Parent to client: end early."""

    ending: Ending


class Look(msgspec.Struct, frozen=True, tag=True):
    """Parent to client: report progress, reading `read` replies for it."""

    read: int


class Ready(msgspec.Struct, frozen=True, tag=True):
    """Client to parent: the connections are made."""


class Standing(msgspec.Struct, frozen=True, tag=True):
    """Client to parent: the reply to `Look`."""

    progress: Progress


class Finished(msgspec.Struct, frozen=True, tag=True):
    """Client to parent: the last message."""

    outcome: ClientOutcome | None
    error: str = ""
    """A message for people; there is no outcome then."""


ToClient = Start | Go | Stop | Look
FromClient = Ready | Standing | Finished
_to_client: msgspec.msgpack.Decoder[ToClient] = msgspec.msgpack.Decoder(ToClient)
_from_client: msgspec.msgpack.Decoder[FromClient] = msgspec.msgpack.Decoder(FromClient)


class _Writable(Protocol):
    def write(self, data: bytes, /) -> object: ...


def send(pipe: _Writable, message: ToClient | FromClient) -> None:
    """Hand a message to a pipe."""
    body = msgspec.msgpack.encode(message)
    pipe.write(len(body).to_bytes(_LENGTH_BYTES, "big"))
    pipe.write(body)


async def read_to_client(pipe: asyncio.StreamReader) -> ToClient:
    """IncompleteReadError where the command is gone."""
    return _to_client.decode(await _frame(pipe))


async def read_from_client(pipe: asyncio.StreamReader) -> FromClient:
    """IncompleteReadError where the client is gone."""
    return _from_client.decode(await _frame(pipe))


async def _frame(pipe: asyncio.StreamReader) -> bytes:
    length = int.from_bytes(await pipe.readexactly(_LENGTH_BYTES), "big")
    return await pipe.readexactly(length)
