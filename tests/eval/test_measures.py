"""Perplexity and KL divergence against their formulas, written out."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from headrace.errors import ConfigError
from headrace.eval.block_errors import block_lengths, mean_error
from headrace.eval.divergence import divergence
from headrace.eval.perplexity import perplexity
from headrace.eval.windows import exp_or_inf
from headrace.models import Model, load_model
from headrace.ops import make_ops
from headrace.ops.interface import Ops
from tests.models.cases import Session
from tests.tiny import tiny_checkpoint

CONTEXT = 40


@pytest.fixture
def ops() -> Ops:
    return make_ops("reference")


def model_of(ops: Ops, seed: int) -> Model:
    return load_model(tiny_checkpoint(seed=seed, tied=True), ops)


def windows() -> list[list[int]]:
    return np.random.default_rng(1).integers(0, 256, (3, CONTEXT)).tolist()


def probabilities(model: Model, ops: Ops) -> npt.NDArray[np.float64]:
    """Of every scored position of all windows, [3 * (CONTEXT / 2 - 1), vocab]."""
    rows = [Session(model, ops).feed(ids)[CONTEXT // 2 : -1] for ids in windows()]
    wide = np.exp(np.concatenate(rows).astype(np.float64))
    return wide / wide.sum(axis=1, keepdims=True)


def targets() -> npt.NDArray[np.int64]:
    return np.concatenate([np.array(ids[CONTEXT // 2 + 1 :]) for ids in windows()])


def test_perplexity_is_that_of_its_formula(ops: Ops) -> None:
    model = model_of(ops, 0)
    seen: list[tuple[int, int]] = []
    got = perplexity(model, ops, windows(), progress=lambda a, b: seen.append((a, b)))
    p = probabilities(model, ops)
    nll = -np.log(p[np.arange(len(p)), targets()])
    assert got.perplexity == pytest.approx(math.exp(nll.mean()), rel=1e-6)
    assert got.nll == pytest.approx(nll.mean(), rel=1e-6)
    error = math.exp(nll.mean()) * nll.std() / math.sqrt(len(nll) - 1)
    assert got.error == pytest.approx(error, rel=1e-4)
    assert (got.windows, got.context, got.tokens) == (3, CONTEXT, len(nll))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_divergence_is_that_of_its_formula(ops: Ops) -> None:
    base, other = model_of(ops, 0), model_of(ops, 1)
    got = divergence(base, other, ops, windows())
    p, q = probabilities(base, ops), probabilities(other, ops)
    kl = (p * np.log(p / q)).sum(axis=1)
    assert got.kl_mean == pytest.approx(kl.mean(), rel=1e-5)
    assert got.kl_max == pytest.approx(kl.max(), rel=1e-5)
    assert got.kl_quantiles["0.5"] == pytest.approx(np.quantile(kl, 0.5), rel=1e-5)
    assert got.same_top == (p.argmax(axis=1) == q.argmax(axis=1)).mean()
    rows = np.arange(len(p))
    change = q[rows, targets()] - p[rows, targets()]
    assert got.p_change_mean == pytest.approx(change.mean(), rel=1e-4)
    assert got.p_change_rms == pytest.approx(np.sqrt((change**2).mean()), rel=1e-4)
    assert got.base_perplexity == pytest.approx(
        perplexity(base, ops, windows()).perplexity, rel=1e-6
    )


def test_figures_have_errors_over_blocks_and_the_ratio_is_that_of_perplexities(ops: Ops) -> None:
    base, other = model_of(ops, 0), model_of(ops, 1)
    got = divergence(base, other, ops, windows())
    p, q = probabilities(base, ops), probabilities(other, ops)
    kl = (p * np.log(p / q)).sum(axis=1)
    blocks = block_lengths([CONTEXT // 2 - 1] * 3)
    assert got.blocks == len(blocks)
    assert got.kl_median == got.kl_quantiles["0.5"]
    assert got.kl_error == pytest.approx(mean_error(kl, blocks), rel=1e-4)
    assert got.perplexity_ratio == pytest.approx(got.perplexity / got.base_perplexity, rel=1e-9)
    rows = np.arange(len(p))
    apart = np.log(p[rows, targets()] / q[rows, targets()])
    expected = got.perplexity_ratio * mean_error(apart, blocks)
    assert got.perplexity_ratio_error == pytest.approx(expected, rel=1e-4)
    errors = (*got.kl_quantile_errors.values(), got.kl_max_error, got.kl_median_error)
    assert all(error > 0 for error in errors)
    same = (p.argmax(axis=1) == q.argmax(axis=1)).astype(float)
    assert got.same_top_error == pytest.approx(mean_error(same, blocks))
    again = divergence(base, other, ops, windows())
    assert again == got, "the same seed gives the same errors"
    assert divergence(base, other, ops, windows(), seed=1).kl_median_error != got.kl_median_error


def test_a_model_does_not_diverge_from_itself(ops: Ops) -> None:
    model = model_of(ops, 0)
    got = divergence(model, model, ops, windows())
    assert (got.kl_mean, got.kl_max, got.same_top, got.p_change_rms) == (0.0, 0.0, 1.0, 0.0)


def test_vocabularies_must_be_of_one_size(ops: Ops) -> None:
    other = load_model(tiny_checkpoint(vocab=320), ops)
    with pytest.raises(ConfigError, match="288 tokens, the other checkpoint 320"):
        divergence(model_of(ops, 0), other, ops, windows())


def test_what_no_float_can_hold_is_infinite() -> None:
    assert exp_or_inf(0.0) == 1.0 and exp_or_inf(709.0) < math.inf
    assert exp_or_inf(9999.0) == math.inf, "the floor of log probabilities"
