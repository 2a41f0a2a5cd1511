"""vLLM's settings: what is accepted, and what a refusal says to write here."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np
import pytest

from headrace import LLM, AsyncLLM, SamplingParams
from headrace.config import EngineConfig, ServerConfig
from headrace.config.vllm.engine_args import ENGINE_ARGS
from headrace.config.vllm.sampling_params import SAMPLING_PARAMS
from headrace.config.vllm.server_args import SERVER_ARGS
from headrace.config.vllm.setting import differs, not_there_yet, renamed, table, without_effect
from headrace.engine.params import SamplingParams as EngineParams
from headrace.engine.params import ThinkingBudget
from headrace.errors import ConfigError, FetchError, RequestError
from headrace.offline.setup import checked_config
from tests.docs.pages import page

OWN = {
    field.name
    for config in (EngineConfig, ServerConfig)
    for field in msgspec.structs.fields(config)
}
SETTINGS = [*ENGINE_ARGS.values(), *SERVER_ARGS.values(), *SAMPLING_PARAMS.values()]
OBJECT = object()
"""A value that no setting accepts but those without effect."""


def test_no_setting_of_headrace_is_in_the_tables() -> None:
    assert not OWN & (ENGINE_ARGS.keys() | SERVER_ARGS.keys())
    assert not set(SamplingParams.__struct_fields__) & SAMPLING_PARAMS.keys()
    assert not ENGINE_ARGS.keys() & SERVER_ARGS.keys()


def test_settings_in_braces_are_settings_of_headrace() -> None:
    for setting in SETTINGS:
        assert set(re.findall(r"\{(.*?)\}", setting.reason)) <= OWN, setting.name
    assert not any("{" in setting.reason for setting in SAMPLING_PARAMS.values())


def test_a_name_is_in_a_table_once() -> None:
    with pytest.raises(ValueError, match="twice"):
        table(renamed("a", "b"), without_effect("a", "c"))


@pytest.mark.parametrize(
    ("accepted", "value", "takes"),
    [
        (1, 1, True),
        (1, 1.0, True),
        (1, 2, False),
        (1, True, False),
        (True, 1, False),
        (False, False, True),
        ({}, {}, True),
        ({}, {"a": 1}, False),
        ("auto", "auto", True),
        (0, np.zeros(2), False),
        (1, OBJECT, False),
        (1, None, True),
    ],
)
def test_values_that_change_nothing_are_taken(accepted: object, value: object, takes: bool) -> None:
    assert not_there_yet("a", "b", accepted).takes(value) is takes
    assert differs("a", "b").takes(value) is (value is None)
    assert without_effect("a", "b").takes(value)


def test_a_refusal_names_setting_value_reason_and_remedy() -> None:
    def refusal(setting: Any) -> str:
        return str(setting.refusal("LLM", 3, str.upper))

    begin = "LLM(a=3) is vLLM's setting"
    assert refusal(renamed("a", "here it is {b}")) == f"{begin}: here it is B"
    assert refusal(differs("a", "it is {b}")) == f"{begin}: it is B; omit it"
    assert refusal(not_there_yet("a", "no b", 1, "x")) == (
        f"{begin} and is not there yet: no b; accepted: 1 or 'x'"
    )
    assert renamed("a", "here it is {b}").hint(str.upper) == "here it is B"
    assert differs("a", "it is {b}").hint(str.upper) == "omit it; it is B"
    assert without_effect("a", "no b").hint(str.upper) == "omit it; no b"
    assert not_there_yet("a", "no b", 1).hint(str.upper) == (
        "it is not there yet, so omit it; no b"
    )


def test_arguments_of_vllm_are_accepted_or_refused_with_what_they_are_here() -> None:
    default = checked_config("LLM", "m", {})
    for name, setting in (ENGINE_ARGS | SERVER_ARGS).items():
        for value in (None, *setting.accepts):
            assert checked_config("LLM", "m", {name: value}) == default, (name, value)
        if setting.status == "no effect":
            assert checked_config("LLM", "m", {name: OBJECT}) == default, name
            continue
        with pytest.raises(ConfigError) as raised:
            checked_config("LLM", "m", {name: OBJECT})
        text = str(raised.value)
        assert text.startswith(f"LLM({name}=<object "), text
        assert ") is vLLM's setting" in text, text
        assert not re.search(r"\{\w+\}", text), text
        assert ("not there yet: " in text) == (setting.status == "not there yet"), text


def test_fields_of_vllm_are_accepted_or_refused_with_what_they_are_here() -> None:
    for name, setting in SAMPLING_PARAMS.items():
        for value in (None, *setting.accepts):
            fields: dict[str, Any] = {name: value}
            assert SamplingParams(top_k=3, **fields) == SamplingParams(top_k=3), (name, value)
        refused: dict[str, Any] = {name: OBJECT}
        if setting.status == "no effect":
            assert SamplingParams(**refused) == SamplingParams(), name
            continue
        with pytest.raises(RequestError) as raised:
            SamplingParams(**refused)
        assert str(raised.value).startswith(f"SamplingParams({name}=<object ")
        assert (raised.value.param, raised.value.code) == (name, "unsupported")


async def test_llm_and_async_llm_refuse_before_they_look_for_the_model() -> None:
    match = r"LLM\(num_speculative_tokens=2\) is vLLM's setting: .* field of speculative_config$"
    with pytest.raises(ConfigError, match=match):
        LLM("no-such-model", num_speculative_tokens=2)
    match = (
        r"AsyncLLM.start\(tensor_parallel_size=2\) is vLLM's setting and is not there yet: "
        r"a model is .*; accepted: 1$"
    )
    with pytest.raises(ConfigError, match=match):
        await AsyncLLM.start("no-such-model", tensor_parallel_size=2)
    with pytest.raises(FetchError, match="no-such-model"):
        LLM("no-such-model", tensor_parallel_size=1, enforce_eager=True, dtype="auto")


def test_settings_of_the_server_and_values_of_vllm_are_named() -> None:
    with pytest.raises(ConfigError, match=r"\(api_key=\.\.\.\): .*--api-key of `headrace serve`"):
        checked_config("LLM", "m", {"api_key": "secret"})
    with pytest.raises(ConfigError, match=r"--enable-docs of `headrace serve` is switched off"):
        checked_config("LLM", "m", {"disable_fastapi_docs": True})
    with pytest.raises(ConfigError, match=r"kv_cache_dtype='nvfp4'\): .*one of auto, f32, bf16"):
        checked_config("LLM", "m", {"kv_cache_dtype": "nvfp4"})


def test_refusals_say_what_is_missing_and_then_what_is_there() -> None:
    for name, value, said in (
        ("repetition_detection", {}, "repeated text does not end a request; repetition_penalty"),
        ("trace_decode_token_ids", [1], "the tokens of an answer cannot be prescribed; they are"),
        ("flat_logprobs", True, "log probabilities are not returned as flat lists; each token"),
    ):
        fields: dict[str, Any] = {name: value}
        with pytest.raises(RequestError, match=f"is vLLM's setting and is not there yet: {said}"):
            SamplingParams(**fields)
    settings: tuple[tuple[str, object, str], ...] = (
        ("tokens_only", True, "replies with token ids alone are not sent; return_token_ids adds"),
        ("profiler_config", {"profiler": "torch"}, "steps are not profiled; `headrace bench"),
    )
    for name, given, said in settings:
        with pytest.raises(ConfigError, match=f"is vLLM's setting and is not there yet: {said}"):
            checked_config("LLM", "m", {name: given})


def test_a_metric_that_a_refusal_names_exists() -> None:
    said = ENGINE_ARGS["enable_mfu_metrics"].refusal("LLM", True, str)
    (name,) = re.findall(r"headrace:\w+", said)
    assert f"`{name}`" in page("metrics.md")


def test_a_field_that_neither_has_is_a_type_error_with_the_nearest_name() -> None:
    with pytest.raises(TypeError, match=r"temprature=\.\.\.\): unknown field.*'temperature'"):
        SamplingParams(temprature=0)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        SamplingParams(0.5)  # type: ignore[call-arg,misc]


def test_parameters_come_over_the_wire_as_they_were() -> None:
    params = EngineParams(temperature=0.5, bad_words_token_ids=((1, 2),), n=1)  # type: ignore[call-arg]
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=EngineParams)
    assert again == params
    assert msgspec.structs.replace(params, seed=1).seed == 1


@pytest.mark.parametrize("name", ["compatibility.md", "offline.md"])
def test_the_pages_say_so(name: str) -> None:
    assert "num_speculative_tokens" in page(name)


def test_what_a_start_with_tools_and_reasoning_names_changes_nothing() -> None:
    default = checked_config("LLM", "m", {})
    for name, value in (
        ("enable_auto_tool_choice", True),
        ("enable_reasoning", True),
        ("guided_decoding_backend", "guidance"),
        ("guided_decoding_disable_fallback", True),
        ("structured_outputs_config", {"backend": "auto"}),
    ):
        assert checked_config("LLM", "m", {name: value}) == default, name
    with pytest.raises(ConfigError, match=r"xgrammar.*always compiled by llguidance"):
        checked_config("LLM", "m", {"guided_decoding_backend": "xgrammar"})


def test_a_budget_for_thinking_has_its_name() -> None:
    assert SamplingParams(thinking_token_budget=5).thinking_token_budget == 5
    params = SamplingParams(thinking=ThinkingBudget(max_tokens=5, end_ids=(7,)))
    assert params.thinking is not None
    assert params.thinking.max_tokens == 5
