"""What an engine refuses, with the field, the value and the limit in the words."""

from __future__ import annotations

import math

import msgspec
import pytest

from headrace.engine.limits import Limits, check_submit
from headrace.engine.messages import Submit
from headrace.engine.params import SamplingParams
from headrace.errors import RequestError

LIMITS = Limits(max_model_len=100, pool_tokens=128, vocab_size=50, max_logprobs=5)
GOOD = Submit("a", [1, 2, 49], SamplingParams())


def refusal(submit: Submit, limits: Limits = LIMITS) -> RequestError:
    with pytest.raises(RequestError) as caught:
        check_submit(submit, limits)
    return caught.value


def test_a_good_request_passes() -> None:
    check_submit(GOOD, LIMITS)
    check_submit(Submit("a", [1] * 99, SamplingParams(max_tokens=None)), LIMITS)
    check_submit(Submit("a", [1] * 99, SamplingParams(max_tokens=1)), LIMITS)
    check_submit(Submit("a", [1], SamplingParams(top_k=-1, top_p=0, seed=-(2**63))), LIMITS)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("temperature", -0.1, "-0.1"),
        ("temperature", math.nan, "nan"),
        ("temperature", math.inf, "inf"),
        ("temperature", 1e6, "10000"),
        ("top_k", -2, "-2"),
        ("top_k", 2**64, "18446744073709551616"),
        ("top_p", -0.1, "-0.1"),
        ("top_p", 1.1, "1.1"),
        ("top_p", math.nan, "nan"),
        ("min_p", -0.1, "-0.1"),
        ("min_p", 1.1, "1.1"),
        ("max_tokens", 0, "1 or more"),
        ("choice", -1, "-1"),
        ("seed", 2**64, "64 bits"),
        ("stop_token_ids", (3, 50), "[1] is token id 50"),
        ("logprobs", 6, "--max-logprobs"),
        ("logprobs", -1, "-1"),
    ],
)
def test_parameters_out_of_range_are_named(field: str, value: object, said: str) -> None:
    params = msgspec.structs.replace(SamplingParams(), **{field: value})
    error = refusal(msgspec.structs.replace(GOOD, params=params))
    assert error.param in (field, f"{field}[1]")
    assert error.code == "invalid_value"
    assert str(error).startswith(field)
    assert said in str(error)


@pytest.mark.parametrize(
    ("prompt", "param", "said"),
    [([], "prompt", "empty"), ([1, 50], "prompt[1]", "50"), ([-1, 3], "prompt[0]", "-1")],
)
def test_prompts_that_cannot_be_read_are_refused(prompt: list[int], param: str, said: str) -> None:
    error = refusal(Submit("a", prompt, SamplingParams()))
    assert error.param == param
    assert said in str(error)


@pytest.mark.parametrize(
    ("length", "max_tokens", "param", "numbers"),
    [
        (100, None, "prompt", ["100 tokens", "101", "at least 1"]),
        (100, 5, "prompt", ["100 tokens", "105: 100 of prompt and 5 of output"]),
        (90, 11, "max_tokens", ["100 tokens", "101: 90 of prompt and 11 of output"]),
    ],
)
def test_what_is_too_long_is_refused_with_the_numbers(
    length: int, max_tokens: int | None, param: str, numbers: list[str]
) -> None:
    submit = Submit("a", [1] * length, SamplingParams(max_tokens=max_tokens))
    error = refusal(submit)
    assert (error.code, error.param) == ("context_length_exceeded", param)
    for number in [*numbers, "--max-model-len"]:
        assert number in str(error)


def test_what_the_pool_cannot_hold_is_refused_with_its_size() -> None:
    limits = msgspec.structs.replace(LIMITS, pool_tokens=64)
    error = refusal(Submit("a", [1] * 60, SamplingParams(max_tokens=5)), limits)
    assert error.code == "context_length_exceeded"
    assert "64 tokens" in str(error)
    assert "--kv-cache-memory-bytes" in str(error)
