"""The same request gives the same tokens whatever else runs, with every sampling parameter."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.engine.messages import Submit
from headrace.engine.params import SAMPLERS
from headrace.engine.sampling.sampler_order import NEUTRAL
from tests.engine.expected import answer
from tests.engine.mock import EOS, NUM_TOKENS, MockModel, drain, make_core, submit

TOKEN = st.integers(0, NUM_TOKENS - 1)


def maybe(values: st.SearchStrategy[Any], none: Any) -> st.SearchStrategy[Any]:
    return st.one_of(st.just(none), values)


# Made once: to make strategies anew for every request takes most of what an example costs.
PARAMETERS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.5, 1.0, 1.5]),
        "top_k": st.sampled_from([-1, 0, 3, 10]),
        "top_p": st.sampled_from([1.0, 0.9, 0.4]),
        "min_p": st.sampled_from([0.0, 0.05, 0.3]),
        "repetition_penalty": maybe(st.sampled_from([0.6, 1.4, 3.0]), 1.0),
        "frequency_penalty": maybe(st.sampled_from([-1.5, 0.5, 2.0]), 0.0),
        "presence_penalty": maybe(st.sampled_from([-1.5, 0.5, 2.0]), 0.0),
        "logit_bias": maybe(st.dictionaries(TOKEN, st.sampled_from([-100.0, -1.0, 3.0])), {}),
        "allowed_token_ids": maybe(st.lists(TOKEN, min_size=1, max_size=6).map(tuple), None),
        "bad_words_token_ids": maybe(
            st.lists(st.lists(TOKEN, min_size=1, max_size=3).map(tuple), max_size=8).map(tuple), ()
        ),
        "stop_token_ids": maybe(st.lists(TOKEN, max_size=3).map(tuple), ()),
        "max_tokens": st.integers(1, 24),
        "ignore_eos": st.booleans(),
        "seed": st.integers(0, 2),
        "logprobs": maybe(st.integers(0, 3), None),
    }
)
MIN_TOKENS = maybe(st.integers(0, 24), 0)
ORDERS = st.one_of(st.just(SAMPLERS), st.permutations(SAMPLERS).map(tuple))
LEFT_OUT = st.sampled_from([None, None, *SAMPLERS])


def settled(
    params: dict[str, Any], min_tokens: int, order: tuple[str, ...], left_out: str | None
) -> dict[str, Any]:
    """Parameters that check_submit accepts; most of them at work."""
    params = params | {"min_tokens": min(min_tokens, params["max_tokens"])}
    for name, none in NEUTRAL.get(left_out or "", {}).items():
        params[name] = none[0]
    banned = {word[0] for word in params["bad_words_token_ids"] if len(word) == 1}
    if banned.issuperset(params["allowed_token_ids"] or ("any",)):
        params["bad_words_token_ids"] = ()
    params["samplers"] = tuple(name for name in order if name != left_out)
    return params


SAMPLING = st.builds(settled, PARAMETERS, MIN_TOKENS, ORDERS, LEFT_OUT)
PROMPTS = st.one_of(st.lists(TOKEN, min_size=1, max_size=20), st.just([3, 1, 4] * 12))


any_batch = given(
    wanted=st.lists(st.tuples(PROMPTS, SAMPLING), min_size=1, max_size=9),
    num_blocks=st.sampled_from([5, 8, 64]),
    budget=st.sampled_from([3, 16, 64]),
)
patient = partial(settings, deadline=None, suppress_health_check=list(HealthCheck))


@patient(max_examples=8)
@any_batch
def test_tokens_do_not_depend_on_the_batch(
    wanted: list[tuple[list[int], dict[str, Any]]], num_blocks: int, budget: int
) -> None:
    check_batch(wanted, num_blocks, budget)


@pytest.mark.load
@patient(max_examples=150)
@any_batch
def test_tokens_depend_on_no_batch_of_many(
    wanted: list[tuple[list[int], dict[str, Any]]], num_blocks: int, budget: int
) -> None:
    check_batch(wanted, num_blocks, budget)


def check_batch(
    wanted: list[tuple[list[int], dict[str, Any]]], num_blocks: int, budget: int
) -> None:
    """Against `answer`, which has no batch, no blocks, no chunks and no preemption."""
    core = make_core(MockModel(), num_gpu_blocks_override=num_blocks, max_num_batched_tokens=budget)
    asked: dict[str, Submit] = {}
    for index, (prompt, params) in enumerate(wanted):
        asked[f"r{index}"] = submit(f"r{index}", prompt, **params)
        core.submit(asked[f"r{index}"])
    results = drain(core)
    for name, each in asked.items():
        expected, reason = answer(each)
        got = results[name]
        assert (got.token_ids, got.finish_reason) == (expected, reason)
        if reason == "error":
            assert "no token is left to come" in (got.outputs[-1].error or "")


def test_preempted_requests_count_their_tokens_once() -> None:
    core = make_core(num_gpu_blocks_override=6, max_num_batched_tokens=64)
    asked = {
        f"r{index}": submit(
            f"r{index}", [index, 5, 5], temperature=1.0, seed=index, max_tokens=60,
            frequency_penalty=0.7, repetition_penalty=1.2,
        )
        for index in range(4)
    }  # fmt: skip
    for each in asked.values():
        core.submit(each)
    results = drain(core)
    assert core.stats().num_preemptions > 0
    for name, each in asked.items():
        assert (results[name].token_ids, results[name].finish_reason) == answer(each)


def test_a_mask_that_leaves_nothing_ends_that_request_alone() -> None:
    core = make_core()
    for name, params in (
        ("forbidden", {"allowed_token_ids": (3,), "bad_words_token_ids": ((3, 3),)}),
        ("unfinishable", {"allowed_token_ids": (EOS,), "min_tokens": 2, "ignore_eos": False}),
        ("padding", {"allowed_token_ids": (NUM_TOKENS,)}),
        ("other", {"logprobs": 1}),
    ):
        core.submit(submit(name, [1, 2], **params))
    results = drain(core)
    for name in ("forbidden", "unfinishable", "padding"):
        assert results[name].finish_reason == "error"
        assert "no token is left to come" in (results[name].outputs[-1].error or "")
    expected = answer(submit("other", [1, 2]))
    assert (results["other"].token_ids, results["other"].finish_reason) == expected


def test_logprobs_are_raw_beside_bias_masks_and_penalties() -> None:
    plain = make_core(max_logprobs=NUM_TOKENS)
    plain.submit(submit("a", [1, 2], max_tokens=1, logprobs=NUM_TOKENS))
    raw = drain(plain)["a"].outputs[0].logprobs
    assert raw is not None
    core = make_core(max_logprobs=NUM_TOKENS)
    core.submit(submit("free", [1, 2], max_tokens=1))
    likeliest = raw[0].token_id
    core.submit(
        submit(
            "bent", [1, 2], max_tokens=1, logprobs=NUM_TOKENS, logit_bias={5: 100.0},
            bad_words_token_ids=((likeliest,),), repetition_penalty=2.0,
        )
    )  # fmt: skip
    bent = drain(core)["bent"].outputs[0].logprobs
    assert bent is not None
    assert bent[0].token_id == 5
    assert bent[0].top == raw[0].top
    assert bent[0].logprob == dict(raw[0].top)[5]


@pytest.mark.parametrize("temperature", [1e-7, 1e-38, 1e-40, 5e-324])
def test_a_temperature_too_small_to_divide_by_is_greedy_in_any_order(temperature: float) -> None:
    text = [1, 5, 9, 13]
    orders = {"samplers": ("top_p", "temperature", "min_p", "top_k"), "top_p": 0.9}
    core = make_core()
    core.submit(submit("greedy", text, max_tokens=5, temperature=0.0, ignore_eos=True))
    core.submit(
        submit("tiny", text, max_tokens=5, temperature=temperature, ignore_eos=True, **orders)
    )
    results = drain(core)
    assert results["tiny"].finish_reason == "length"
    assert results["tiny"].token_ids == results["greedy"].token_ids
