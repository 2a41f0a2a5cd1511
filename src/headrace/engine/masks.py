"""Masks of grammars, made in a thread while the forward pass runs.

What may follow depends on the text before the pass, so it can be found beside it: llguidance lets
other threads run, and so do the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from headrace.engine.constraint import Constraint
from headrace.engine.request import Request


class MaskThread:
    """The thread that makes masks; it is started by the first of them."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None

    def begin(self, requests: Sequence[Request]) -> Future[None] | None:
        """Begin to make the masks of those that have a grammar; None where none has. Until it is
        done nothing of them may change."""
        looking = [
            (request.constraint, request.token_ids)
            for request in requests
            if request.constraint is not None
        ]
        if not looking:
            return None
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="masks")
        return self._executor.submit(_look, looking)


def _look(looking: Sequence[tuple[Constraint, Sequence[int]]]) -> None:
    for constraint, token_ids in looking:
        constraint.look(token_ids)
