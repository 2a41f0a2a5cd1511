"""Sampling on the torch backend: tokens and log probabilities of the reference, row by row."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headrace.engine.memory.device_memory import LOGIT_BYTES
from headrace.ops.interface import Ops
from headrace.ops.reference import ReferenceOps
from headrace.ops.sampling_rows import (
    Chain,
    LogitsEdit,
    Penalties,
    SamplingRows,
    UnusableLogitsError,
)
from tests.ops.cpu.test_sampling import chains, mixed_rows, rows_of

torch = pytest.importorskip("torch", reason="the torch backend needs PyTorch")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from headrace.ops.torch import sampling  # noqa: E402
from tests.ops.torch.on_host import torch_ops  # noqa: E402

pytestmark = pytest.mark.torch

REFERENCE = ReferenceOps()


@pytest.fixture(scope="module")
def ops() -> Ops:
    return torch_ops()


def logits_of(seed: int, count: int, spread: float) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((count, 1003)) * spread).astype(np.float32)


def alone(rows: SamplingRows, row: int) -> SamplingRows:
    part = slice(row, row + 1)
    return SamplingRows(*(field[part] for field in vars(rows).values()))


@pytest.mark.parametrize("spread", [0.01, 1.0, 5.0])
def test_samples_as_the_reference(ops: Ops, spread: float) -> None:
    """Draws fall within 1e-6 of a boundary about once in 1e4 rows; these seeds have none."""
    logits, rows = logits_of(1, 300, spread), mixed_rows(2, 300)
    got = ops.sample(logits, rows, 1000)
    assert (got == REFERENCE.sample(logits, rows, 1000)).all()
    for row in (0, 150, 299):
        assert ops.sample(logits[row : row + 1], alone(rows, row), 1000)[0] == got[row]


@pytest.mark.parametrize("spread", [0.01, 1.0, 5.0])
def test_chains_sample_as_the_reference(ops: Ops, spread: float) -> None:
    logits = logits_of(7, 200, spread)
    logits[:, 100:200] = -np.inf
    logits[:, 200:300] = np.round(logits[:, 200:300])  # ties
    before = logits.copy()
    rows = replace(mixed_rows(8, 200), chains=chains(9, 200, 1000))
    got = ops.sample(logits, rows, 1000)
    assert (got == REFERENCE.sample(logits, rows, 1000)).all()
    assert (logits == before).all()
    for row in (0, 151, 199):
        assert ops.sample(logits[row : row + 1], alone(rows, row), 1000)[0] == got[row]


def test_masks_are_of_bits(ops: Ops) -> None:
    rng, count = np.random.default_rng(3), 40
    logits = logits_of(4, count, 2.0)
    logits[5, 7] = np.nan
    masks = [rng.integers(0, 2**32, 32, np.uint32) if row % 3 else None for row in range(count)]
    assert masks[5] is not None
    masks[5][0] &= np.uint32(~(1 << 7) & 0xFFFFFFFF)
    rows = replace(mixed_rows(5, count), masks=tuple(masks))
    got = ops.sample(logits, rows, 1000)
    assert (got == REFERENCE.sample(logits, rows, 1000)).all()
    masks[4] = np.zeros(32, np.uint32)
    with pytest.raises(UnusableLogitsError, match="row 4 of logits is -inf everywhere"):
        ops.sample(logits, replace(rows, masks=tuple(masks)), 1000)


def test_ties_and_padding(ops: Ops) -> None:
    """The draws are spread evenly, so that each of 50 equal tokens is drawn by four of them."""
    count = 200
    logits = np.zeros((count, 64), np.float32)
    logits[:, 60:] = 9  # padding: never taken
    logits[:, :10] = -np.inf
    rows = replace(rows_of(count), uniform=(np.arange(count) + 0.5) / count)
    assert (np.bincount(ops.sample(logits, rows, 60))[10:] == 4).all()
    assert (ops.sample(logits, rows_of(count, temperature=0), 60) == 10).all()
    top_one = rows_of(count, top_k=1)
    assert len(set(ops.sample(logits, replace(top_one, uniform=rows.uniform), 60))) == 50


def test_adjustments_are_those_of_numpy(ops: Ops) -> None:
    logits = logits_of(11, 5, 3.0)
    none = np.zeros(0, np.int32)
    rng = np.random.default_rng(12)
    ids = rng.choice(1003, 60, replace=False).astype(np.int32)
    penalties = Penalties(ids, rng.integers(0, 4, 60).astype(np.int32), 1.3, 0.7, -0.2)
    edits = [
        LogitsEdit(0, ids[:9], rng.standard_normal(9).astype(np.float32), None, none, None),
        LogitsEdit(1, none, np.zeros(0, np.float32), ids, ids[:4], penalties),
        LogitsEdit(4, ids[:2], np.full(2, 5, np.float32), None, ids[5:8], penalties),
    ]
    want, got = logits.copy(), logits.copy()
    REFERENCE.adjust(want, edits)
    ops.adjust(got, edits)
    assert (got == want).all()
    with pytest.raises(ValueError, match=r"row 5 is not in \[0, 5\)"):
        ops.adjust(got, [edits[0]._replace(row=5)])


def test_top_logprobs(ops: Ops) -> None:
    logits = logits_of(13, 40, 4.0)
    logits[:, 300:600] = np.round(logits[:, 300:600])  # ties
    logits[3, 10:] = -np.inf
    chosen = np.random.default_rng(14).integers(0, 1000, 40).astype(np.int32)
    got = ops.top_logprobs(logits, chosen, 7, 1000)
    want = REFERENCE.top_logprobs(logits, chosen, 7, 1000)
    assert (got.ids == want.ids).all() and (got.rank == want.rank).all()
    for name in ("chosen", "values"):
        found, wanted = getattr(got, name), getattr(want, name)
        finite = np.isfinite(wanted)
        assert (found[~finite] == wanted[~finite]).all()
        # The sum is of whole numbers of 2^-42, of a thousand at most off by half of one.
        error = np.abs(found[finite] - wanted[finite])
        assert (error <= 2.0**-23 * np.abs(wanted[finite]) + 1e-9).all()
    single = ops.top_logprobs(logits[9:10], chosen[9:10], 7, 1000)
    assert (single.values == got.values[9]).all()
    assert ops.top_logprobs(logits[:0], chosen[:0], 2, 1000).ids.shape == (0, 2)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_that_mean_nothing_are_named(ops: Ops, temperature: float) -> None:
    for value, words in ((np.nan, "holds NaN"), (np.inf, "holds NaN or"), (-np.inf, "is -inf")):
        logits = logits_of(15, 4, 1.0)
        logits[2, slice(None) if value == -np.inf else 17] = value
        with pytest.raises(UnusableLogitsError, match=f"row 2 of logits {words}") as caught:
            ops.sample(logits, rows_of(4, temperature), 1000)
        assert caught.value.row == 2
        with pytest.raises(UnusableLogitsError, match="row 2 of logits"):
            ops.top_logprobs(logits, np.zeros(4, np.int32), 1, 1000)


def test_what_is_out_of_range_is_refused(ops: Ops) -> None:
    logits = logits_of(16, 3, 1.0)
    with pytest.raises(ValueError, match="temperature -1"):
        ops.sample(logits, rows_of(3, temperature=-1), 1000)
    with pytest.raises(ValueError, match="num_tokens 1004 does not fit"):
        ops.sample(logits, rows_of(3), 1004)
    with pytest.raises(ValueError, match="2 values of temperature for 3 rows"):
        ops.sample(logits, rows_of(2), 1000)
    with pytest.raises(ValueError, match="k 1001 is not in"):
        ops.top_logprobs(logits, np.zeros(3, np.int32), 1001, 1000)
    spread = replace(rows_of(3, temperature=0.5), chains=(None, Chain(("temperature",)), None))
    logits[1, 7] = 3e38
    with pytest.raises(UnusableLogitsError, match=r"row 1 .* \+inf"):
        ops.sample(logits, spread, 1000)


class Held(TorchDispatchMode):
    """Bytes of the tensors that came while it was entered: `most` of them lived at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self._now = 0
        self._seen = weakref.WeakKeyDictionary[Any, bool]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = tree_leaves((args, kwargs))
        before = {id(each.untyped_storage()) for each in given if isinstance(each, torch.Tensor)}
        result = func(*args, **(kwargs or {}))
        for each in tree_leaves(result):
            if not isinstance(each, torch.Tensor):
                continue
            storage = each.untyped_storage()
            if id(storage) not in before and storage not in self._seen:
                self._seen[storage] = True
                self._now += storage.nbytes()
                weakref.finalize(storage, self._gone, storage.nbytes())
        self.most = max(self.most, self._now)
        return result

    def _gone(self, nbytes: int) -> None:
        self._now -= nbytes


def test_a_row_takes_no_more_than_is_counted_for_it() -> None:
    """With top_p and a mask, the most that a draw does."""
    rng, count, width = np.random.default_rng(6), 8, 20_000
    logits = torch.from_numpy((rng.standard_normal((count, width)) * 2).astype(np.float32))
    masks = tuple(rng.integers(1, 2**32, width // 32, np.uint32) for _ in range(count))
    rows = SamplingRows(
        temperature=np.full(count, 0.8), top_k=np.full(count, 50, np.int32),
        top_p=np.full(count, 0.9), min_p=np.full(count, 0.01), uniform=rng.random(count),
        masks=masks,
    )  # fmt: skip
    with Held() as held:
        sampling.sample(logits, rows, width)
    of_a_logit = (held.most + logits.nbytes) / logits.numel()
    assert 60 < of_a_logit <= LOGIT_BYTES
