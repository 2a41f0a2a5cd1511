"""The two ends of a reply, for whoever watches a run: decoding them costs the same for any length.

A stream's TTFT is at its beginning, its last token and its counts at its end; what lies between is
as much work as the reply is long, and waits until the run is over.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import msgspec

from headrace.bench.client.raw import RawReply
from headrace.bench.record import RequestRecord

# At either end.
END_PIECES = 8
# Of both ends together: about sixty events of a chat, however few pieces they came in.
EXCERPT_BYTES = 16 * 1024
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
_LINE_ENDS = (b"\n",)

_Piece = tuple[int, bytes]


class Excerpt(NamedTuple):
    """The beginning and end of a long reply."""

    raw: RawReply
    """The reply without its middle."""
    cut_ns: tuple[int, int] | None
    """Times of the pieces on either side of the cut, by the client's clock; None if the reply is
    whole."""


def excerpt(raw: RawReply, *, stream: bool, lines: bool = False) -> Excerpt | None:
    """At most EXCERPT_BYTES in 4 * END_PIECES pieces. None for a reply without a stream that is
    larger, and for a stream without the end of an event near both of its own.

    lines: the stream is of lines of JSON, not of server-sent events.
    """
    pieces = raw.pieces
    is_short = len(pieces) <= 4 * END_PIECES
    if is_short and sum(len(piece) for _, piece in pieces) <= EXCERPT_BYTES:
        return Excerpt(raw, None)
    if not stream:
        return None
    ends = _LINE_ENDS if lines else _EVENT_ENDS
    head, tail = _head(pieces, ends), _tail(pieces, ends)
    if not head or not tail:
        return None
    cut = msgspec.structs.replace(raw, pieces=(*head, *tail))
    return Excerpt(cut, (head[-1][0], tail[0][0]))


def has_both_ends(record: RequestRecord, cut_ns: tuple[int, int], origin_ns: int) -> bool:
    """Whether the first and the last content of an excerpt's record are those of the reply."""
    content = record.content
    if not content:
        return False
    before_ns, after_ns = (at_ns - origin_ns for at_ns in cut_ns)
    return content[0].at_ns <= before_ns and content[-1].at_ns >= after_ns


def _head(pieces: tuple[_Piece, ...], ends: tuple[bytes, ...]) -> list[_Piece]:
    """The first pieces, the last of them up to the end of an event; empty where there is none."""
    left = EXCERPT_BYTES // 2
    found: list[_Piece] = []
    for at_ns, piece in pieces[:END_PIECES]:
        found.append((at_ns, piece[: max(left, 0)]))
        left -= len(piece)
    while found:
        at_ns, piece = found.pop()
        cut = max((piece.rfind(end) + len(end) for end in ends if end in piece), default=0)
        if cut:
            return [*found, (at_ns, piece[:cut])]
    return []


def _tail(pieces: tuple[_Piece, ...], ends: tuple[bytes, ...]) -> list[_Piece]:
    """The last pieces, from behind the end of an event on; empty where there is none."""
    left = EXCERPT_BYTES // 2
    found: deque[_Piece] = deque()
    for at_ns, piece in reversed(pieces[-END_PIECES:]):
        found.appendleft((at_ns, piece[max(len(piece) - max(left, 0), 0) :]))
        left -= len(piece)
    while found:
        at_ns, piece = found.popleft()
        cut = min((piece.find(end) + len(end) for end in ends if end in piece), default=0)
        if cut:
            return [*([(at_ns, piece[cut:])] if piece[cut:] else []), *found]
    return []
