"""Sampling as the native module takes it: chains of stages are arrays, and a row of logits that it
refuses in words is named by its number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from headrace.ops import adjustment
from headrace.ops.sampling_rows import Penalties, SamplingRows, UnusableLogitsError

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]
Chains = tuple[I32, F32, I32, I32, I32]
"""Stages, strengths, start, ids, counts."""

_NONE = np.zeros(0, np.int32)
_NO_PENALTIES = Penalties(_NONE, _NONE, 1.0, 0.0, 0.0)
_BAD_ROW = re.compile(r"row (\d+) of logits (.+)")


def native_chains(rows: SamplingRows, count: int, width: int) -> Chains:
    """The chains of R rows as the native side reads them: ChainsView in native/chains_view.h."""
    adjustment.check_chains(rows, count, width)
    stages = np.full((count, len(adjustment.STAGES)), -1, np.int32)
    every = [_NO_PENALTIES] * count
    for row, chain in enumerate(rows.chains):
        if chain is not None:
            numbers = [adjustment.STAGES.index(stage) for stage in chain.stages]
            stages[row, : len(numbers)] = numbers
            every[row] = chain.penalties or _NO_PENALTIES
    start = np.zeros(count + 1, np.int32)
    np.cumsum([len(row.ids) for row in every], out=start[1:])
    return (
        stages,
        np.array([row[2:] for row in every], np.float32),
        start,
        np.concatenate([row.ids for row in every]),
        np.concatenate([row.counts for row in every]),
    )


@contextmanager
def naming_bad_rows() -> Iterator[None]:
    """The native module refuses rows of logits in words; the contract asks for the row itself."""
    try:
        yield
    except ValueError as error:
        found = _BAD_ROW.fullmatch(str(error))
        if found is None:
            raise
        raise UnusableLogitsError(int(found[1]), found[2]) from error
