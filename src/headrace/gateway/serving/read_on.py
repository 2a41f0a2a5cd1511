"""The end of an answer that nobody reads any more, for its bill.

Providers tell their count last, behind the content: a client that leaves with all it wanted must
not have it for the price of an estimate.
"""

from __future__ import annotations

import asyncio

from headrace.gateway.serving.attempt import Opened
from headrace.gateway.serving.tally import Tally
from headrace.gateway.upstream.connection import Reply
from headrace.gateway.upstream.errors import UpstreamError
from headrace.protocol.neutral.dialect import ContentEndReader

# The count follows the last content at once, or does not come.
_WITHIN_S = 1.5


async def read_on(opened: Opened, tally: Tally) -> None:
    """Where an answer had come to its finish and its count is still to come; else nothing."""
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
