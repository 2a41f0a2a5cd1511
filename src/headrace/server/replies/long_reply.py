"""A JSON reply too long to be made in one piece: its items are encoded and sent a few at a time.

What takes the place of the whole is its parts' memory, and other calls have their turn between
them. The client sees the same bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.server.replies.reply import encode

PART_ITEMS = 4096
"""Of a list, in one write: a few milliseconds of work."""


class LongReply(Response):
    """A JSON reply of which the parts are made as they are sent."""

    media_type = "application/json"

    def __init__(self, parts: Iterator[bytes]) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers()
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all parts, at the pace of the client."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        for part in self._parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
            await asyncio.sleep(0)  # while a connection takes all that is written, send never waits
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def filled(reply: msgspec.Struct, fields: Mapping[str, Iterator[bytes]]) -> Iterator[bytes]:
    """The JSON of a reply whose lists or texts are empty, with these in their places.

    fields: what each of them holds, as JSON, in the order of the reply, which has no other texts.
    """
    rest = encode(reply)
    for name, parts in fields.items():
        at = rest.index(f'"{name}":'.encode()) + len(name) + len('"":[')
        yield rest[:at]
        yield from parts
        rest = rest[at:]
    yield rest


def list_parts(lists: Iterable[Sequence[object]]) -> Iterator[bytes]:
    """The items of lists that are one list in the reply."""
    comma = b""
    for items in lists:
        yield comma + encode(items)[1:-1]
        comma = b","


def text_parts(texts: Iterable[str]) -> Iterator[bytes]:
    """Texts that are one text in the reply."""
    for text in texts:
        yield encode(text)[1:-1]


def in_parts(items: Sequence[int], most: int = PART_ITEMS) -> Iterator[Sequence[int]]:
    """A list cut into parts."""
    for at in range(0, len(items), most):
        yield items[at : at + most]
