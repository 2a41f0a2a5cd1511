"""What the target computed of each request's last tokens, kept until a head reads it.

Kept is what `watch` names: all requests, as in the beginning, some, or none. While it is none a
step is computed as without a head. Of a request that is watched from the middle of its text on,
what comes from there is kept, and a head begins there.

Positions of a request are held without a gap: [start, stop). A row that is computed again, or
behind drafts that were rejected, takes the place of what was there from its own start on. Of a
request that nobody reads for long the oldest go, KEPT_TOKENS at most are held, and fewer where that
would be more than KEPT_BYTES of all: a head then begins in the middle of the text. Of so many
requests that each would have less than LEAST_TOKENS the last ones have none.

What is held is a copy, but for a step of one row: the features of a step are those of all its
tokens, prompts' too, and would be kept by the one row that still holds some.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.engine.request import Request
from headrace.ops.interface import Ops
from headrace.ops.operands import Array

if TYPE_CHECKING:
    from headrace.engine.scheduling.plan import Row

KEPT_TOKENS = 256
"""Of a request, at most: what a head reads of a long prompt. It is mostly the near past that says
what comes next, and a prompt of thousands would cost as much as a layer of the target."""
KEPT_BYTES = 64 << 20
"""Of all requests."""
LEAST_TOKENS = 16
"""Of a request that has any: with less than a step's tokens a head would never catch up."""


class _Part(NamedTuple):
    """Rows [at, at + num_rows) of an array of so many."""

    values: Array
    at: int
    num_rows: int
    of: int


class _Held:
    """The features of one request."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.stop = start
        self.parts: list[_Part] = []


class Features:
    """The features of requests' last tokens."""

    def __init__(
        self,
        ops: Ops,
        layers: Sequence[int],
        width: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """layers: as of `Model.forward_with_features`. width: values of a token."""
        self._clock = clock
        self._seconds = 0.0
        self.layers = tuple(layers)
        self._ops = ops
        self._token_bytes = 4 * width
        self._held: dict[Request, _Held] = {}
        self._watched: frozenset[Request] | None = None
        """None: all."""

    def watch(self, requests: Collection[Request] | None) -> None:
        """Keep what is computed of these requests from now on, of all for None; what is held of
        others is dropped."""
        self._watched = None if requests is None else frozenset(requests)
        if self._watched is not None:
            for request in self._held.keys() - self._watched:
                del self._held[request]

    def note(
        self, rows: Sequence[Row], query_start: npt.NDArray[np.int32], features: Array
    ) -> None:
        """A step computed these rows. features: f32[N, width]; query_start: int32[R + 1]."""
        began_s = self._clock()
        most = self._most_tokens
        if len(rows) == 1:
            # Of most steps of one stream: what they computed is kept as it is.
            self._note_row(rows[0], 0, features, most)
        else:
            for row, at in zip(rows, query_start.tolist(), strict=False):
                self._note_row(row, at, features, most)
        fewest = self._most_tokens
        if fewest < most:  # the more there are, the less each has
            for held in self._held.values():
                self._drop(held, held.stop - fewest)
        self._seconds += self._clock() - began_s

    def take_seconds(self) -> float:
        """What keeping took since this was asked last."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def _note_row(self, row: Row, at: int, features: Array, most: int) -> None:
        request, count = row.request, row.num_tokens
        if not self.wants(request):
            return
        held = self._held.get(request)
        if held is None or not held.start <= row.start <= held.stop:
            held = self._held[request] = _Held(row.start)
        elif held.stop > row.start:
            _cut(held, row.start)
        if count > most:
            held.parts.clear()
            held.start = row.start + count - most
            at, count = at + count - most, most
        if count != len(features):
            features, at = self._ops.take_rows(features, _span(at, count)), 0
        held.parts.append(_Part(features, at, count, count))
        held.stop = row.start + row.num_tokens
        if held.stop - held.start > most:
            self._drop(held, held.stop - most)

    def wants(self, request: Request) -> bool:
        """Whether what is computed of a request is kept: it is watched, may have drafts, and there
        is room."""
        if not request.params.speculation:
            return False
        if self._watched is not None and request not in self._watched:
            return False
        room = KEPT_BYTES // (self._token_bytes * LEAST_TOKENS)
        return request in self._held or len(self._held) < room

    def wants_any(self, rows: Sequence[Row]) -> bool:
        """Whether that is so of any of these rows."""
        if self._watched is not None and not self._watched:
            return False
        return any(self.wants(row.request) for row in rows)

    def start(self, request: Request) -> int:
        """The first position that can be taken: one before those that are held, as of a cached
        prefix the last token is not computed again; that of the next token where none is."""
        held = self._held.get(request)
        return len(request.token_ids) if held is None else max(0, held.start - 1)

    def reaches(self, request: Request) -> bool:
        """Whether all tokens are there but the last, which nobody has computed."""
        held = self._held.get(request)
        return held is not None and held.start < held.stop >= len(request.token_ids) - 1

    def num_held(self, request: Request) -> int:
        """Positions that are held of a request."""
        held = self._held.get(request)
        return 0 if held is None else held.stop - held.start

    def take(self, request: Request, start: int, stop: int) -> list[Array]:
        """Features of positions [start, stop), in order, as one array or several. Those of the
        first that is held stand in for those of the one before it: one entry of many is a little
        off, and with it how often drafts are right."""
        held = self._held[request]
        if not held.start - 1 <= start < stop <= held.stop or held.start == held.stop:
            raise IndexError(f"[{start}, {stop}) of features [{held.start}, {held.stop})")
        taken: list[Array] = []
        if start < held.start:
            taken += self.take(request, held.start, held.start + 1)
        at = held.start
        for values, first, count, _ in held.parts:
            begin, end = max(start, at), min(stop, at + count)
            if begin < end:
                taken.append(self._ops.take_rows(values, _span(first + begin - at, end - begin)))
            at += count
        return taken

    def drop_before(self, request: Request, position: int) -> None:
        """They were read and are not wanted again."""
        held = self._held.get(request)
        if held is not None:
            self._drop(held, min(position, held.stop))

    def forget(self, request: Request) -> None:
        """The request has ended."""
        self._held.pop(request, None)

    @property
    def _most_tokens(self) -> int:
        fair = KEPT_BYTES // (self._token_bytes * max(1, len(self._held)))
        return min(KEPT_TOKENS, max(1, fair))

    def _drop(self, held: _Held, before: int) -> None:
        """Let go of what is before a position."""
        parts = held.parts
        while held.start < before and parts:
            values, at, count, size = parts[0]
            gone = min(count, before - held.start)
            held.start += gone
            if gone == count:
                del parts[0]
                continue
            at, count = at + gone, count - gone
            if 2 * count <= size:  # an array goes as a whole
                values, at, size = self._ops.take_rows(values, _span(at, count)), 0, count
            parts[0] = _Part(values, at, count, size)


def _cut(held: _Held, stop: int) -> None:
    """Let go of what is from a position on."""
    while held.stop > stop:
        part = held.parts.pop()
        gone = min(part.num_rows, held.stop - stop)
        held.stop -= gone
        if gone < part.num_rows:
            held.parts.append(part._replace(num_rows=part.num_rows - gone))


def _span(start: int, count: int) -> npt.NDArray[np.int32]:
    return np.arange(start, start + count, dtype=np.int32)
