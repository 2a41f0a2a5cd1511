"""What an engine refuses, with the field, the value and the limit in the words."""

from __future__ import annotations

import math

import msgspec
import pytest

from headrace.engine.limits import (
    MAX_BAD_WORDS_IDS,
    MAX_PROMPT_LOGPROBS_VALUES,
    MAX_STOP_TOKEN_IDS,
    Limits,
    check_prompt,
    check_submit,
)
from headrace.engine.messages import Submit
from headrace.engine.params import SamplingParams
from headrace.errors import RequestError
from tests.engine.mock import make_core

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
        ("max_tokens", -1, "0 or more"),
        ("choice", -1, "-1"),
        ("seed", 2**64, "64 bits"),
        ("stop_token_ids", (3, 50), "[1] is token id 50"),
        ("logprobs", 6, "--max-logprobs"),
        ("logprobs", -1, "-1"),
        ("prompt_logprobs", 6, "--max-logprobs"),
        ("prompt_logprobs", -1, "-1"),
        ("repetition_penalty", 0, "0.001 to 1000"),
        ("repetition_penalty", math.nan, "nan"),
        ("frequency_penalty", 2.1, "-2 to 2"),
        ("presence_penalty", -2.1, "-2 to 2"),
        ("min_tokens", -1, "0 or more"),
        ("min_tokens", 17, "more than max_tokens, 16"),
        ("logit_bias", {50: 1.0}, "token id 50; the model has 0 to 49"),
        ("logit_bias", {-1: 1.0}, "token id -1"),
        ("allowed_token_ids", (), "omit it"),
        ("allowed_token_ids", (3, 50), "[1] is token id 50"),
        ("allowed_token_ids", (3,) * 51, "51 ids; at most 50"),
        ("stop_token_ids", (3,) * (MAX_STOP_TOKEN_IDS + 1), "at most 1024"),
        ("bad_words_token_ids", ((1,) * MAX_BAD_WORDS_IDS, (2,)), "16385 ids in all"),
    ],
)
def test_parameters_out_of_range_are_named(field: str, value: object, said: str) -> None:
    params = msgspec.structs.replace(SamplingParams(), **{field: value})
    error = refusal(msgspec.structs.replace(GOOD, params=params))
    assert error.param in (field, f"{field}[1]")
    assert len(str(error)) < 300
    side = (isinstance(value, int | float) and f"{type(value).__name__} {value > 0}") or ""
    codes = {
        "int True": "integer_above_max_value",
        "int False": "integer_below_min_value",
        "float True": "decimal_above_max_value",
        "float False": "decimal_below_min_value",
    }
    assert error.code in (codes.get(side), "invalid_value", codes.get(side.replace("int", "float")))
    assert str(error).startswith(field)
    assert said in str(error)


@pytest.mark.parametrize(
    ("params", "param", "said"),
    [
        ({"logit_bias": {1: 1.0, 7: 100.5}}, "logit_bias[7]", "is 100.5; it must be -100 to 100"),
        ({"logit_bias": {7: math.nan}}, "logit_bias[7]", "nan"),
        ({"logit_bias": {7: -math.inf}}, "logit_bias[7]", "-inf"),
        ({"bad_words_token_ids": ((1,), ())}, "bad_words_token_ids[1]", "empty"),
        ({"bad_words_token_ids": ((1,), (3, 50))}, "bad_words_token_ids[1][1]", "token id 50"),
        ({"samplers": ("top_p", "typical_p")}, "samplers[1]", "'typical_p'; the samplers are pen"),
        ({"samplers": ("top_p", "top_p")}, "samplers[1]", "'top_p' a second time"),
        (
            {"top_p": 0.9, "samplers": ("top_k",)},
            "top_p",
            "is 0.9, but samplers (top_k) omits 'top_p'",
        ),
        (
            {"presence_penalty": 0.5, "samplers": ("temperature",)},
            "presence_penalty",
            "omits 'penalties'; add it to samplers, or keep presence_penalty at 0",
        ),
        ({"temperature": 0.0, "samplers": ()}, "temperature", "samplers (none) omits"),
    ],
)
def test_parts_of_parameters_are_named(params: dict[str, object], param: str, said: str) -> None:
    error = refusal(Submit("a", [1], SamplingParams(**params)))  # type: ignore[arg-type]
    assert (error.param, error.code) == (param, "invalid_value")
    assert str(error).startswith(param)
    assert said in str(error)


def test_numbers_too_long_to_print_are_refused_in_words() -> None:
    huge = 1 << 50000
    for params in (
        {"top_k": huge},
        {"temperature": -huge},
        {"logprobs": huge},
        {"stop_token_ids": (3, huge)},
        {"logit_bias": {huge: 1.0}},
        {"logit_bias": {7: huge}},
    ):
        error = refusal(Submit("a", [1], SamplingParams(**params)))  # type: ignore[arg-type]
        assert "an integer of 50001 bits" in str(error)


def test_what_bends_a_request_passes_at_its_limits() -> None:
    for params in (
        {"logit_bias": {0: 100, 49: -100.0}},
        {"allowed_token_ids": (0, 49)},
        {"bad_words_token_ids": ((49, 0), (3,))},
        {"max_tokens": 5, "min_tokens": 5},
        {"max_tokens": None, "min_tokens": 99},
        {"samplers": ()},
        {"samplers": ("top_p", "temperature"), "top_k": -1, "top_p": 0.5, "temperature": 0.0},
        {"prompt_logprobs": 5},
        {"repetition_penalty": 1000, "frequency_penalty": 2, "presence_penalty": -2},
    ):
        check_submit(Submit("a", [1], SamplingParams(**params)), LIMITS)  # type: ignore[arg-type]


def test_a_priority_is_for_engines_that_look_at_it() -> None:
    urgent = msgspec.structs.replace(GOOD, priority=-5)
    error = refusal(urgent)
    assert error.param == "priority"
    assert "is -5, but this engine schedules by fcfs" in str(error)
    assert "--scheduling-policy priority" in str(error)
    by_priority = msgspec.structs.replace(LIMITS, scheduling_policy="priority")
    check_submit(urgent, by_priority)
    beyond = refusal(msgspec.structs.replace(GOOD, priority=2**63), by_priority)
    assert beyond.param == "priority"


@pytest.mark.parametrize("seconds", [0, 0.0, -1, math.nan, math.inf, 2e9])
def test_a_deadline_lies_ahead(seconds: float) -> None:
    error = refusal(msgspec.structs.replace(GOOD, timeout_s=seconds))
    assert error.param == "timeout_s"
    assert str(error).startswith(f"timeout_s is {seconds}")
    check_submit(msgspec.structs.replace(GOOD, timeout_s=0.001), LIMITS)


def test_more_least_tokens_than_there_is_room_for() -> None:
    error = refusal(Submit("a", [1] * 10, SamplingParams(max_tokens=None, min_tokens=91)))
    assert (error.code, error.param) == ("context_length_exceeded", "min_tokens")
    assert "101: 10 of prompt and 91 of output" in str(error)


def test_limits_are_those_of_the_engine() -> None:
    info = make_core(scheduling_policy="priority").info()
    assert Limits.of(info, 7).scheduling_policy == "priority"
    assert Limits.of(info, 7).vocab_size == info.vocab_size


@pytest.mark.parametrize(
    ("prompt", "param", "said"),
    [([], "prompt", "empty"), ([1, 50], "prompt[1]", "50"), ([-1, 3], "prompt[0]", "-1")],
)
def test_prompts_that_cannot_be_read_are_refused(prompt: list[int], param: str, said: str) -> None:
    error = refusal(Submit("a", prompt, SamplingParams()))
    assert error.param == param
    assert said in str(error)


def test_messages_without_text_are_not_called_empty() -> None:
    with pytest.raises(RequestError, match=r"^messages become no tokens: they"):
        check_prompt([], LIMITS, "messages")


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


def test_texts_that_no_message_takes_are_refused() -> None:
    for field in ("request_id", "cache_salt"):
        error = refusal(msgspec.structs.replace(GOOD, **{field: "ab\ud800"}))
        assert error.param == field
        assert "U+D800 at 2" in str(error)
    check_submit(Submit("\u00e9\U0001f600", [1], SamplingParams(), cache_salt="\x00"), LIMITS)


def test_the_log_probabilities_of_a_prompt_fit_into_one_piece() -> None:
    longest = Limits(
        max_model_len=1 << 21, pool_tokens=1 << 21, vocab_size=50, max_logprobs=1 << 20
    )
    params = SamplingParams(max_tokens=1, prompt_logprobs=3)
    check_submit(Submit("a", [1] * (MAX_PROMPT_LOGPROBS_VALUES // 4), params), longest)
    error = refusal(Submit("a", [1] * (MAX_PROMPT_LOGPROBS_VALUES // 4 + 1), params), longest)
    assert error.param == "prompt_logprobs"
    assert f"makes {MAX_PROMPT_LOGPROBS_VALUES + 4} " in str(error)
    assert str(MAX_PROMPT_LOGPROBS_VALUES) in str(error)
