"""Reads the end of an answer whose client has left, for its bill.

Providers report usage last, after the content: a client that leaves once it has all the content
must not pay an estimate instead.
"""

from __future__ import annotations

import asyncio

from headrace.gateway.serving.attempt import Opened
from headrace.gateway.serving.tally import Tally
from headrace.gateway.upstream.connection import Reply
from headrace.gateway.upstream.errors import UpstreamError
from headrace.protocol.neutral.dialect import ContentEndReader

# The usage follows the last content at once, or not at all.
_WITHIN_S = 1.5


async def read_on(opened: Opened, tally: Tally) -> None:
    """Read on if the answer is finished and its usage is still to come."""
    reply, reader = opened.reply, opened.reader
    if reader is None or tally.ended or not isinstance(reply, Reply):
        return
    is_over = isinstance(reader, ContentEndReader) and reader.content_is_over
    if tally.finish is None and not is_over:
        return
    try:
        async with asyncio.timeout(_WITHIN_S):
            while not tally.ended and tally.failure is None:
                piece = await reply.piece()
                for event in reader.feed(piece) if piece else reader.end():
                    tally.take(event)
                if not piece:
                    return
    except (TimeoutError, UpstreamError):
        return
