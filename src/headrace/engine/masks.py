"""Masks of grammars, made in a thread while the forward pass runs.

What may follow depends on the text before the pass and on its drafts, so it can be found beside it:
llguidance lets other threads run, and so do the kernels. A row where nothing is drawn has no mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from headrace.engine.constraint import Look
from headrace.engine.plan import Row

Looks = dict[int, Sequence[Look]]
"""By the row's place in its step, a look for each token that it draws."""


class MaskThread:
    """The thread that makes masks; it is started by the first of them."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None

    def begin(self, rows: Sequence[Row]) -> Future[Looks] | None:
        """Begin to make the masks of those that draw within a grammar; None where none does. Until
        it is done nothing of them may change."""
        looking = {
            index: row
            for index, row in enumerate(rows)
            if row.request.constraint is not None and row.num_drawn
        }
        if not looking:
            return None
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="masks")
        return self._executor.submit(_look, looking)


def _look(looking: dict[int, Row]) -> Looks:
    return {index: _looks_of(row) for index, row in looking.items()}


def _looks_of(row: Row) -> Sequence[Look]:
    constraint, token_ids = row.request.constraint, row.request.token_ids
    assert constraint is not None, "it has a grammar"
    if row.drafts.are_certain:
        return [constraint.look_after(token_ids, row.drafts.token_ids)]
    return constraint.look_along(token_ids, row.drafts.token_ids)
