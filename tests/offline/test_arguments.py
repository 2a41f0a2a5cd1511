"""Objects of a caller: what is refused with the argument's name, and what is converted."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import LLM, SamplingParams
from headrace.engine.params import SamplingParams as EngineParams
from headrace.errors import RequestError
from headrace.offline import arguments
from headrace.structured.grammar_checks import GrammarChecks
from tests.tiny import write_tiny_hf

CHECKS = GrammarChecks()
PARAMS = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    path: Path = write_tiny_hf(tmp_path_factory.mktemp("arguments"))
    return LLM(path, backend="reference", num_gpu_blocks_override=64)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("temperature", "1", "a number"),
        ("temperature", True, "a number"),
        ("top_k", 1.0, "an integer"),
        ("top_k", "2", "an integer"),
        ("top_p", [1], "a number"),
        ("min_p", 1j, "a number"),
        ("seed", 1.5, "an integer or None"),
        ("seed", True, "an integer or None"),
        ("choice", False, "an integer"),
        ("max_tokens", 1.5, "an integer or None"),
        ("max_tokens", True, "an integer or None"),
        ("max_tokens", np.float64(3), "an integer or None"),
        ("stop_token_ids", None, "a list of token ids"),
        ("stop_token_ids", 5, "a list of token ids"),
        ("stop_token_ids", b"ab", "a list of token ids"),
        ("ignore_eos", 1, "True or False"),
        ("ignore_eos", None, "True or False"),
        ("logprobs", 2.0, "an integer or None"),
        ("logprobs", True, "an integer or None"),
        ("prompt_logprobs", "3", "an integer or None"),
        ("repetition_penalty", "1.1", "a number"),
        ("frequency_penalty", None, "a number"),
        ("presence_penalty", False, "a number"),
        ("min_tokens", 1.0, "an integer"),
        ("logit_bias", None, "a mapping from token ids to numbers"),
        ("logit_bias", [(1, 2.0)], "a mapping from token ids to numbers"),
        ("allowed_token_ids", 5, "a list of token ids"),
        ("allowed_token_ids", "ab", "a list of token ids"),
        ("bad_words_token_ids", None, "a list of which each is a list of token ids"),
        ("bad_words_token_ids", "ab", "a list of which each is a list of token ids"),
        ("samplers", "top_p", "a list of texts"),
        ("samplers", None, "a list of texts"),
    ],
)
def test_parameters_of_another_type_are_named(
    llm: LLM, field: str, value: Any, expected: str
) -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(**{field: value})
    assert caught.value.param == field
    assert str(caught.value).startswith(f"{field} is {value!r}; it must be {expected}")
    params: Any = EngineParams(**{field: value})  # not checked when it is made
    asked: list[Callable[[], object]] = [
        lambda: llm.generate("a", params),
        lambda: next(llm.stream("a", params)),
        lambda: llm.chat([{"role": "user", "content": "a"}], params),
    ]
    for ask in asked:
        with pytest.raises(RequestError) as caught:
            ask()
        assert caught.value.param == field
        assert str(caught.value).startswith(f"{field} is {value!r}; it must be {expected}")
    with pytest.raises(RequestError) as caught:
        llm.generate(["a", "b"], [PARAMS, params])
    assert caught.value.param == f"params[1].{field}"
    assert not llm._core.has_work


@pytest.mark.parametrize("value", ["a", 1.0, True, None])
def test_a_stop_id_of_another_type_is_named_with_its_place(llm: LLM, value: Any) -> None:
    unchecked: Any = EngineParams(stop_token_ids=(3, value))
    for make in (lambda: SamplingParams(stop_token_ids=(3, value)), lambda: unchecked):
        with pytest.raises(RequestError, match=r"stop_token_ids\[1\] is .*; it must be a token id"):
            llm.generate("a", make())


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("logit_bias", {"5": 1.0}, r"logit_bias key is '5'; it must be a token id"),
        ("logit_bias", {True: 1.0}, r"logit_bias key is True; it must be a token id"),
        ("logit_bias", {5: "1"}, r"logit_bias\[5\] is '1'; it must be a number"),
        ("bad_words_token_ids", [[1], 2], r"bad_words_token_ids\[1\] is 2; it must be a list"),
        (
            "bad_words_token_ids",
            [[1, 2.0]],
            r"bad_words_token_ids\[0\]\[1\] is 2.0; it must be a t",
        ),
        ("samplers", ["top_p", 3], r"samplers\[1\] is 3; it must be a text"),
    ],
)
def test_parts_of_another_type_are_named(field: str, value: Any, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        SamplingParams(**{field: value})
    with pytest.raises(RequestError, match=words):
        arguments.sampling_params(EngineParams(**{field: value}), {}, CHECKS)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("temperature", -1, "temperature is -1; it must be 0 to 10000"),
        ("top_p", 2, "top_p is 2; it must be 0 to 1"),
        ("top_p", float("nan"), "top_p is nan; it must be 0 to 1"),
        ("min_p", np.float32(1.5), "min_p is 1.5; it must be 0 to 1"),
        ("max_tokens", -1, "max_tokens is -1; it must be 0 or more"),
        pytest.param(
            "top_k", 1 << 50000, "top_k is an integer of 50001 bits; it must be -1", id="huge"
        ),
    ],
)
def test_numbers_out_of_range_are_named_when_parameters_are_made(
    field: str, value: Any, words: str
) -> None:
    with pytest.raises(RequestError, match=f"^{words}") as caught:
        SamplingParams(**{field: value})
    assert caught.value.param == field
    kind = "integer" if field in ("max_tokens", "top_k") else "decimal"
    assert caught.value.code in (
        "invalid_value",
        f"{kind}_below_min_value",
        f"{kind}_above_max_value",
    )


@pytest.mark.parametrize(
    ("prompts", "param"),
    [
        (None, "prompts"),
        (5, "prompts"),
        (b"abc", "prompts"),
        ({"prompt": "a"}, "prompts"),
        ({"a", "b"}, "prompts"),
        ([None], "prompts[0]"),
        ([1, 2], "prompts[0]"),
        (["a", b"abc"], "prompts[1]"),
        ([bytearray(b"abc")], "prompts[0]"),
        ([memoryview(b"abc")], "prompts[0]"),
        ([[1.5]], "prompts[0][0]"),
        ([[1, "a"]], "prompts[0][1]"),
        ([[1], [True]], "prompts[1][0]"),
        ([np.array([1.5, 2.0])], "prompts[0][0]"),
        ([np.array([True])], "prompts[0][0]"),
        ([np.array(3)], "prompts[0]"),
        ([np.array([[1], [2]])], "prompts[0][0]"),
        (np.array([1, 2]), "prompts[0]"),
    ],
)
def test_prompts_of_another_type_are_named(llm: LLM, prompts: Any, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        llm.generate(prompts, PARAMS)
    assert caught.value.param == param
    assert str(caught.value).startswith(f"{param} is ")
    assert "token id" in str(caught.value)


def test_a_streams_prompt_is_named_prompt(llm: LLM) -> None:
    for prompt, param in ((None, "prompt"), (b"abc", "prompt"), ([1.5], "prompt[0]")):
        with pytest.raises(RequestError, match="token id") as caught:
            next(llm.stream(prompt, PARAMS))  # type: ignore[arg-type]
        assert caught.value.param == param


@pytest.mark.parametrize(
    ("name", "value", "param"),
    [
        ("params", {"max_tokens": 3}, "params"),
        ("params", "greedy", "params"),
        ("params", [{"max_tokens": 3}], "params[0]"),
        ("params", [None], "params[0]"),
        ("stop", None, "stop"),
        ("stop", 5, "stop"),
        ("stop", b"a", "stop"),
        ("stop", ["a", 5], "stop[1]"),
        ("cache_salt", 5, "cache_salt"),
        ("cache_salt", None, "cache_salt"),
        ("cache_salt", b"a", "cache_salt"),
    ],
)
def test_other_arguments_of_another_type_are_named(
    llm: LLM, name: str, value: Any, param: str
) -> None:
    with pytest.raises(RequestError, match="must be ") as caught:
        llm.generate("a", **{"params": PARAMS, name: value})
    assert caught.value.param == param
    if not isinstance(value, list):
        with pytest.raises(RequestError, match="must be "):
            next(llm.stream("a", **{"params": PARAMS, name: value}))


@pytest.mark.parametrize("messages", [None, 5, "hi", {"role": "user", "content": "hi"}])
def test_messages_are_a_list(llm: LLM, messages: Any) -> None:
    with pytest.raises(RequestError, match=r"messages is .*; it must be a list of messages"):
        llm.chat(messages, PARAMS)


def test_a_long_value_is_cut_in_the_words(llm: LLM) -> None:
    with pytest.raises(RequestError) as caught:
        llm.generate("a", PARAMS, cache_salt=["x" * 5000] * 5000)  # type: ignore[arg-type]
    assert len(str(caught.value)) < 500


def test_integers_of_any_kind_are_token_ids(llm: LLM) -> None:
    (expected,) = llm.generate([[0, 1, 2]], PARAMS)
    same: list[Any] = [
        (0, 1, 2),
        range(3),
        np.arange(3),
        np.arange(3, dtype=np.uint8),
        [np.int32(0), 1, np.int64(2)],
        array("i", [0, 1, 2]),
        deque([0, 1, 2]),
    ]
    for given in (same, np.array([[0, 1, 2]] * 2)):
        results = llm.generate(given, PARAMS)  # type: ignore[arg-type]
        # What was found in the cache differs: all but the last token of the same prompt.
        assert [replace(result, cached_tokens=0) for result in results] == [expected] * len(given)
    assert all(type(one) is int for one in llm.generate(same[2:3], PARAMS)[0].prompt_token_ids)
    with pytest.raises(RequestError, match="empty"):
        llm.generate([np.array([], np.int64)], PARAMS)  # type: ignore[list-item]


def test_numbers_of_numpy_become_those_of_messages() -> None:
    given = SamplingParams(
        temperature=np.float32(0.5),  # type: ignore[arg-type]
        top_k=np.int64(7),  # type: ignore[arg-type]
        top_p=1,
        seed=np.uint32(9),  # type: ignore[arg-type]
        stop_token_ids=[np.int16(3), 4],  # type: ignore[arg-type]
        ignore_eos=np.bool_(True),  # type: ignore[arg-type]
        logit_bias={np.int32(4): np.float32(0.5), 6: 1},  # type: ignore[dict-item]
        allowed_token_ids=np.array([1, 2]),  # type: ignore[arg-type]
        bad_words_token_ids=[np.array([5, 6]), (7,)],  # type: ignore[arg-type]
        samplers=["temperature", "top_p", "top_k"],  # type: ignore[arg-type]
    )
    converted = arguments.sampling_params(given, {}, CHECKS)
    assert converted == EngineParams(
        temperature=0.5, top_k=7, top_p=1, seed=9, stop_token_ids=(3, 4), ignore_eos=True,
        logit_bias={4: 0.5, 6: 1}, allowed_token_ids=(1, 2), bad_words_token_ids=((5, 6), (7,)),
        samplers=("temperature", "top_p", "top_k"),
    )  # fmt: skip
    assert type(converted.temperature) is float
    assert type(converted.seed) is int
    assert type(converted.ignore_eos) is bool


def test_what_is_left_out_is_the_models_and_what_is_given_wins() -> None:
    of_model = {"temperature": 0.6, "top_k": 20}
    assert arguments.params_for(None, 1, of_model, CHECKS) == [
        EngineParams(temperature=0.6, top_k=20)
    ]
    for given, expected in (
        (SamplingParams(seed=1), EngineParams(temperature=0.6, top_k=20, seed=1)),
        (SamplingParams(temperature=1.0), EngineParams(temperature=1.0, top_k=20)),
        (SamplingParams(temperature=0, top_k=0), EngineParams(temperature=0)),
        (SamplingParams(samplers=("top_k",)), EngineParams(top_k=20, samplers=("top_k",))),
        (EngineParams(seed=1), EngineParams(seed=1)),
    ):
        assert arguments.sampling_params(given, of_model, CHECKS) == expected
        assert arguments.params_for([given], 1, of_model, CHECKS) == [expected]


def test_numbers_of_any_length_are_left_to_the_limits() -> None:
    huge = {"logit_bias": {1 << 50000: 1 << 50000}, "top_k": 1 << 50000}
    converted = arguments.sampling_params(EngineParams(**huge), {}, CHECKS)  # type: ignore[arg-type]
    assert converted == EngineParams(**huge)  # type: ignore[arg-type]


def test_what_is_right_is_taken_as_it_is() -> None:
    params = EngineParams(seed=5, stop_token_ids=(1, 2), logprobs=2, max_tokens=None)
    assert arguments.sampling_params(params, {}, CHECKS) == params
    assert arguments.params_for(None, 2, {}, CHECKS) == [EngineParams()] * 2
    assert arguments.stop_strings("ab") == arguments.stop_strings(["ab"]) == ("ab",)
    assert arguments.prompts("ab") == arguments.prompts(("ab",)) == ["ab"]
    assert arguments.prompts([]) == []
