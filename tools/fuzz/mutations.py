"""Ways of damaging bytes whose structure is known as a list of fields.

A field is a span of bytes with a kind. Damage is done to whole fields (their value, their place,
their number) as well as to single bytes, because a reader falls over lengths, types and counts that
are wrong by themselves, and chance alone rarely hits those.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple


class Span(NamedTuple):
    """Bytes `start` to `end`; an integer in little-endian order where `is_integer`."""

    start: int
    end: int
    is_integer: bool


# Where counts, lengths and offsets break: around zero, signs, and the widths they are kept in.
_EDGES = [
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    9,
    12,
    13,
    31,
    32,
    33,
    63,
    64,
    65,
    127,
    128,
    255,
    256,
    65535,
    65536,
]
_EDGES += [
    (1 << bits) + step for bits in (24, 30, 31, 32, 40, 62, 63, 64) for step in (-8, -1, 0, 1)
]


def damage(
    data: bytes, spans: Sequence[Span], others: Sequence[bytes], rng: random.Random
) -> bytes:
    """`data` damaged in one to four places; `others` lend pieces to splice in."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        kind = rng.random()
        if kind < 0.55 and spans:
            _change_integer(out, rng.choice(spans), rng)
        elif kind < 0.75:
            _flip(out, spans, rng)
        elif kind < 0.80:
            del out[rng.randrange(len(out) + 1) :]
        elif spans:
            _splice(out, spans, others, rng)
        if not out:
            break
    return bytes(out)


def _change_integer(out: bytearray, span: Span, rng: random.Random) -> None:
    if not span.is_integer or span.end > len(out):
        return
    width = span.end - span.start
    value = int.from_bytes(out[span.start : span.end], "little")
    kind = rng.random()
    if kind < 0.4:
        value = rng.choice(_EDGES)
    elif kind < 0.7:
        value += rng.choice((-8, -1, 1, 8, 32))
    elif kind < 0.8:
        value = len(out) + rng.randrange(-64, 64)
    elif kind < 0.9:
        value ^= 1 << rng.randrange(8 * width)
    else:
        value = rng.randrange(64)
    out[span.start : span.end] = (value % (1 << 8 * width)).to_bytes(width, "little")


def _flip(out: bytearray, spans: Sequence[Span], rng: random.Random) -> None:
    if not out:
        return
    end = spans[-1].end if spans else len(out)
    at = rng.randrange(max(1, min(len(out), end)))
    out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256), out[at] ^ 1))


def _splice(
    out: bytearray, spans: Sequence[Span], others: Sequence[bytes], rng: random.Random
) -> None:
    """Cut out, repeat or overwrite a run of fields, with one from elsewhere or another input."""
    first, last = sorted(rng.randrange(len(spans)) for _ in range(2))
    last = min(last, first + rng.randrange(1, 12))
    start, end = spans[first].start, spans[last].end
    piece = bytes(out[start:end])
    kind = rng.random()
    if kind < 0.3:
        del out[start:end]
    elif kind < 0.6:
        at = rng.choice(spans).start
        out[at:at] = piece
    elif kind < 0.8:
        at = rng.choice(spans).start
        out[at : at + len(piece)] = piece
    elif others:
        other = rng.choice(others)
        at = rng.randrange(len(other)) if other else 0
        out[start:end] = other[at : at + rng.randrange(1, 200)]
