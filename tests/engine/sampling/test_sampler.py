"""Draws that depend on (seed, choice, position) only, and log probabilities of the raw logits."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from headrace.engine.request import Request
from headrace.engine.sampling.sampler import (
    LOGPROB_FLOOR,
    DrawPosition,
    Sampler,
    uniform,
)
from headrace.ops.sampling_rows import UnusableLogitsError
from tests.engine.mock import NUM_TOKENS, VOCAB, MockOps, real_ops, submit


def place(**params: object) -> DrawPosition:
    one = submit("r", [1, 2, 3], **params)
    request = Request("r", [1, 2, 3], 3, one.params, 10, seed=one.params.seed or 0)
    return DrawPosition(request, request.token_ids)


def sampler() -> Sampler:
    return Sampler(MockOps(), NUM_TOKENS)  # type: ignore[arg-type]


def logits(rows: int) -> np.ndarray:
    return np.random.default_rng(rows).standard_normal((rows, VOCAB)).astype(np.float32)


def test_draws_are_known_numbers_so_that_a_seed_means_the_same_for_ever() -> None:
    assert uniform(0, 0, 0) == 0.156742553465558
    assert uniform(1, 0, 0) == 0.33776134126730917
    assert uniform(-1, 2, 77) == uniform(2**64 - 1, 2, 77)


def test_draws_are_uniform_and_independent_in_every_argument() -> None:
    for index in range(3):
        draws = []
        for i in range(4000):
            arguments = [5, 0, 9]
            arguments[index] = i
            draws.append(uniform(*arguments))
        values = np.array(draws)
        assert values.min() >= 0
        assert values.max() < 1
        # Means of 4000 uniform draws have a standard deviation of 0.0046.
        assert abs(values.mean() - 0.5) < 0.025
        assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.08
        counts = np.bincount((values * 16).astype(int), minlength=16)
        assert counts.min() > 170  # 250 expected, standard deviation 15


def test_a_rows_token_does_not_depend_on_the_other_rows() -> None:
    many = logits(8)
    places = [place(temperature=1.0, seed=i, logprobs=3) for i in range(8)]
    together = sampler().sample(many, places)
    alone = [sampler().sample(many[i : i + 1], [places[i]])[0] for i in range(8)]
    assert together == alone


def test_logprobs_are_of_the_raw_distribution_below_the_vocabulary() -> None:
    row = logits(1)
    row[:, NUM_TOKENS:] = 100.0
    (draw,) = sampler().sample(row, [place(temperature=5.0, top_k=2, seed=1, logprobs=4)])
    assert draw.logprob is not None
    wide = row[0, :NUM_TOKENS].astype(np.float64)
    expected = wide - math.log(np.exp(wide).sum())
    assert draw.logprob.token_id == draw.token_id
    assert draw.logprob.logprob == pytest.approx(expected[draw.token_id], abs=1e-6)
    order = np.argsort(-wide, kind="stable")
    assert [token for token, _ in draw.logprob.top] == order[:4].tolist()
    assert draw.logprob.rank == 1 + order.tolist().index(draw.token_id)


def test_each_request_gets_as_many_rivals_as_it_asked_for() -> None:
    counts = [None, 0, 3, None, NUM_TOKENS, 1]
    draws = sampler().sample(logits(6), [place(logprobs=count) for count in counts])
    got = [None if draw.logprob is None else len(draw.logprob.top) for draw in draws]
    assert got == counts


def test_impossible_tokens_have_the_floor_for_a_logprob() -> None:
    row = np.full((1, VOCAB), -np.inf, np.float32)
    row[0, 3] = 1.0
    (draw,) = sampler().sample(row, [place(logprobs=2)])
    assert draw.token_id == 3
    assert draw.logprob is not None
    assert [value for _, value in draw.logprob.top] == [0.0, LOGPROB_FLOOR]


@pytest.mark.parametrize("backend", ["mock", "reference", "cpu"])
@pytest.mark.parametrize("spoiled", [np.nan, np.inf, "masked"])
def test_a_row_without_a_distribution_fails_alone(spoiled: float | str, backend: str) -> None:
    chosen = sampler() if backend == "mock" else Sampler(real_ops(backend), NUM_TOKENS)
    rows = logits(3)
    rows[1] = -np.inf if spoiled == "masked" else rows[1]
    if spoiled != "masked":
        rows[1, 5] = spoiled
    places = [place(temperature=1.0, seed=2, logprobs=1) for _ in range(3)]
    draws = chosen.sample(rows, places)
    assert draws[1].token_id is None
    assert draws[1].error
    clean = chosen.sample(rows[[0, 2]], [places[0], places[2]])
    assert [draws[0], draws[2]] == clean


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_backends_say_which_row_is_unusable_and_tell_it_from_mistakes(backend: str) -> None:
    ops = real_ops(backend)
    rows = logits(4)
    rows[2, 5] = np.nan
    places = [place(temperature=1.0, seed=i) for i in range(4)]
    wanted = Sampler(ops, NUM_TOKENS)._rows_at(places, (), ())
    chosen = np.zeros(4, np.int32)
    with pytest.raises(UnusableLogitsError, match="row 2 of logits holds NaN") as caught:
        ops.sample(rows, wanted, NUM_TOKENS)
    assert caught.value.row == 2
    with pytest.raises(UnusableLogitsError) as caught:
        ops.top_logprobs(rows, chosen, 3, NUM_TOKENS)
    assert caught.value.row == 2
    for mistake in (
        lambda: ops.sample(rows, wanted, VOCAB + 1),
        lambda: ops.sample(rows, replace(wanted, top_p=wanted.top_p + 1), NUM_TOKENS),
        lambda: ops.sample(rows, replace(wanted, top_k=wanted.top_k[:3]), NUM_TOKENS),
        lambda: ops.top_logprobs(rows, chosen, VOCAB + 1, NUM_TOKENS),
        lambda: ops.top_logprobs(rows, chosen + NUM_TOKENS, 1, NUM_TOKENS),
    ):
        with pytest.raises(ValueError) as refused:
            mistake()
        assert not isinstance(refused.value, UnusableLogitsError)


@pytest.mark.parametrize("backend", ["mock", "reference", "cpu"])
def test_a_mistake_of_ours_is_raised_and_is_no_requests_error(backend: str) -> None:
    ops = MockOps() if backend == "mock" else real_ops(backend)
    too_many = Sampler(ops, VOCAB + 1)  # type: ignore[arg-type]
    for count in (1, 3):
        with pytest.raises(ValueError, match="num_tokens"):
            too_many.sample(logits(count), [place(seed=i) for i in range(count)])


def test_extreme_parameters_mean_what_they_say() -> None:
    row = logits(1)
    best = int(np.argmax(row[0, :NUM_TOKENS]))
    for params in (
        {"temperature": 1e-300, "seed": 1},
        {"temperature": 1.0, "top_p": 1e-300, "seed": 1},
        {"temperature": 1.0, "top_k": 1, "seed": 1},
        {"temperature": 1.0, "min_p": 1.0, "seed": 1},
    ):
        assert sampler().sample(row, [place(**params)])[0].token_id == best
    huge = place(temperature=1.0, top_k=2**62, seed=1)
    free = place(temperature=1.0, seed=1)
    assert sampler().sample(row, [huge]) == sampler().sample(row, [free])


BENDING: list[dict[str, object]] = [
    {"temperature": 0.0, "repetition_penalty": 5.0, "logprobs": 2},
    {"seed": 1, "temperature": 1.0, "logit_bias": {4: 3.0, 9: -50.0}},
    {"seed": 2, "temperature": 0.7, "allowed_token_ids": (4, 8, 15, 16, 23), "top_p": 0.9},
    {"seed": 3, "temperature": 1.5, "top_p": 0.8, "samplers": ("top_p", "temperature")},
    {"seed": 4, "temperature": 1.0, "top_k": 5},
    {
        "seed": 5, "temperature": 0.5, "top_k": 9, "frequency_penalty": 1.5, "logprobs": 1,
        "samplers": ("temperature", "top_k", "penalties"),
    },
    {"temperature": 0.0, "bad_words_token_ids": ((3, 30), (6,)), "min_tokens": 4},
]  # fmt: skip


@pytest.mark.parametrize("backend", ["mock", "reference", "cpu"])
def test_rows_that_are_adjusted_do_not_depend_on_others_nor_on_the_backend(backend: str) -> None:
    chosen = sampler() if backend == "mock" else Sampler(real_ops(backend), NUM_TOKENS)
    rows = logits(len(BENDING))
    together = chosen.sample(rows.copy(), [bent(params) for params in BENDING])
    alone = [
        chosen.sample(rows[index : index + 1].copy(), [bent(params)])[0]
        for index, params in enumerate(BENDING)
    ]
    assert together == alone
    tokens = [draw.token_id for draw in together]
    assert tokens == [draw.token_id for draw in sampler().sample(rows, list(map(bent, BENDING)))]


def bent(params: dict[str, object]) -> DrawPosition:
    made = place(**params)
    made.request.token_ids += [3, 3, 5]
    made.request.num_prompt = 3
    return made


@pytest.mark.parametrize("backend", ["mock", "reference", "cpu"])
def test_a_row_that_fails_leaves_the_others_adjusted_once(backend: str) -> None:
    """Each is tried alone then, on logits that have their bias and penalties already."""
    chosen = sampler() if backend == "mock" else Sampler(real_ops(backend), NUM_TOKENS)
    rows = logits(len(BENDING))
    expected = chosen.sample(rows.copy(), [bent(params) for params in BENDING])
    masked = bent({"allowed_token_ids": (3,), "bad_words_token_ids": ((3,),), "logprobs": 1})
    spoiled = np.concatenate([rows[:1], rows])
    draws = chosen.sample(spoiled, [masked, *(bent(params) for params in BENDING)])
    assert draws[1:] == expected
    assert draws[0].token_id is None
    assert "no token is left to come" in (draws[0].error or "")


def test_requests_that_ask_for_nothing_are_left_alone() -> None:
    rows = logits(3)
    before = rows.copy()

    class NoAdjusting(MockOps):
        def adjust(self, logits: object, adjustments: object) -> None:
            raise AssertionError("nothing was asked for")

    places = [place(temperature=1.0, seed=i, stop_token_ids=(3,), top_k=4) for i in range(3)]
    Sampler(NoAdjusting(), NUM_TOKENS).sample(rows, places)  # type: ignore[arg-type]
    assert (rows == before).all()
    assert (
        places[0].request.logits_processor
        is places[1].request.logits_processor
        is places[2].request.logits_processor
    )
