"""Masks of grammars: made before the forward pass where that takes little time, and in a thread
beside it where it takes more.

What may follow depends on the text before the pass and on its drafts, so it can be found beside it:
llguidance lets other threads run, and so do the kernels. But each mask made there takes the
interpreter's lock from the pass and gives it back, and the processor from its kernels, which
together cost more than the masks of an ordinary schema. A row where nothing is drawn has no mask.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from headrace.engine.drafts.proposer import Drafts
from headrace.engine.grammars.constraint import Constraint, Look
from headrace.engine.scheduling.plan import Row

Looks = dict[int, Sequence[Look]]
"""By the row's place in its step, a look for each token that it draws."""

AT_ONCE_S = 1e-3
"""Masks that are expected to take so long at most are made before the pass: a mask takes some 10 µs
of a schema that is usual, and a millisecond and more where grammar and vocabulary are large."""

_OLD = 0.9
"""The weight of what masks took before in what the next is expected to take."""

_FORGOTTEN = 0.98
"""Of that, with each step whose masks the thread makes: waiting for others is a part of what they
take there, so that now and then a step has to show what they take without it."""


class MaskMaker:
    """The maker of masks. Its thread is started by the first step whose masks take long."""

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._mask_s = 0.0
        """What a mask is expected to take."""
        self._executor: ThreadPoolExecutor | None = None

    def begin(self, rows: Sequence[Row]) -> Callable[[], Looks] | None:
        """Begin to make the masks of those that draw within a grammar; None where none does. What
        is returned waits for them, and until then nothing of these rows may change."""
        looking: dict[int, Row] = {}
        num_masks = 0
        for index, row in enumerate(rows):
            if row.request.constraint is not None and (num_drawn := row.num_drawn):
                looking[index] = row
                num_masks += num_drawn
        if not looking:
            return None
        if self._mask_s * num_masks <= AT_ONCE_S:
            began_s = self._clock()
            looks = _looks(looking)
            spent_s = (self._clock() - began_s) / num_masks
            self._mask_s = _OLD * self._mask_s + (1 - _OLD) * spent_s
            return lambda: looks
        self._mask_s *= _FORGOTTEN
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="masks")
        return self._executor.submit(_looks, looking).result


def _looks(looking: dict[int, Row]) -> Looks:
    return {index: _looks_of(row) for index, row in looking.items()}


def _looks_of(row: Row) -> Sequence[Look]:
    constraint, token_ids, drafts = row.request.constraint, row.request.token_ids, row.drafts
    assert constraint is not None, "it has a grammar"
    if not drafts.token_ids and (kept := constraint.kept(len(token_ids))) is not None:
        return [kept]
    begun_s = constraint.pace.begin()
    looks = _looks_after(constraint, token_ids, drafts)
    constraint.pace.end(begun_s)
    return looks


def _looks_after(
    constraint: Constraint, token_ids: Sequence[int], drafts: Drafts
) -> Sequence[Look]:
    if drafts.are_certain or not drafts.token_ids:
        return [constraint.look_after(token_ids, drafts.token_ids)]
    return constraint.look_along(token_ids, drafts.token_ids)
