"""A stream as the client got it, as the one body that says the same without a stream."""

from __future__ import annotations

import logging
from collections.abc import Callable

from headrace.errors import RequestError
from headrace.gateway.request_log.line import Line
from headrace.gateway.serving.incoming import Incoming
from headrace.gateway.serving.prepared import Prepared
from headrace.protocol.json_object import JsonObject
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.collect import collected
from headrace.protocol.neutral.dialect import ClientSide, ReplySide

logger = logging.getLogger(__name__)

# Of a line and its stream; b"" where nothing of the answer came, None where it cannot be read.
Assemble = Callable[[Line, bytes], bytes | None]
# Of a dialect that clients speak, by its name: how it is written, and how it is read. None where
# nobody reads it.
Sides = Callable[[str], tuple[ClientSide, ReplySide] | None]


class Assembling:
    """Assembly of a whole answer from the pieces of a stream. A stream that was cut off gives what
    had arrived."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides

    def __call__(self, line: Line, stream: bytes) -> bytes | None:
        """See `Assemble`."""
        sides = self._sides(line.entry.dialect)
        if sides is None or line.request is None:
            return None
        client, provider = sides
        call = _call(line, client, line.request)
        try:
            reader = provider.stream_reader(call)
            events = [*reader.feed(stream), *reader.end()]
            reply = collected(provider.name, events)
            return client.write_reply(reply, call) if reply.choices else b""
        except Exception:
            # Of an odd stream the pieces are kept, or nothing; the log goes on.
            logger.debug("%s: its stream cannot be assembled", line.entry.id, exc_info=True)
            return None


def _call(line: Line, client: ClientSide, request: bytes) -> ChatCall:
    entry = line.entry
    incoming = Incoming(
        id=entry.id,
        side=client,
        path=line.path,
        headers={},
        body=JsonObject.read(request),
        model=entry.model,
        stream=True,
        received_ns=0,
        caller=None,
    )
    prepared = Prepared(incoming)
    try:
        return prepared.call
    except RequestError:
        return prepared.stub
