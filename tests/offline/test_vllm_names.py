"""Names of vLLM's Python API at a call, at the object and at a result."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace import LLM, AsyncLLM, SamplingParams, errors
from headrace.config.vllm.calls import CALL_ARGS, LLM_NAMES, RESULT_NAMES
from headrace.errors import ConfigError, RequestError
from headrace.offline.results import GenerationDelta, GenerationResult
from headrace.offline.setup import checked_config
from tests.tiny import write_tiny_hf

PARAMS = SamplingParams(temperature=0, max_tokens=2)
RESULT: Any = GenerationResult("a", (1,), "stop", (1,))
DELTA: Any = GenerationDelta("a", (1,))


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path: Path = write_tiny_hf(tmp_path_factory.mktemp("names"))
    return LLM(path, backend="reference", num_gpu_blocks_override=64)


@pytest.fixture
def async_llm() -> Any:
    return object.__new__(AsyncLLM)


def test_arguments_of_a_call_are_refused_with_their_names_here(llm: Any, async_llm: Any) -> None:
    for engine, owner in ((llm, "LLM"), (async_llm, "AsyncLLM")):
        for method in ("generate", "chat", "stream"):
            for name, setting in CALL_ARGS.items():
                with pytest.raises(RequestError) as caught:
                    getattr(engine, method)(["a"], **{name: 7})
                assert str(caught.value) == setting.refusal(f"{owner}.{method}", 7, str)
                assert (caught.value.param, caught.value.code) == (name, "unsupported")
    with pytest.raises(RequestError, match=r"sampling_params=.* setting: here it is params$"):
        llm.generate(prompts=["a"], sampling_params=PARAMS)
    with pytest.raises(RequestError, match=r"use_tqdm=False\) is .*: here it is progress$"):
        llm.generate(["a"], PARAMS, use_tqdm=False)


def test_none_is_an_argument_that_is_not_given(llm: Any) -> None:
    expected = llm.generate(["a"], PARAMS)
    assert llm.generate(["a"], PARAMS, lora_request=None, sampling_params=None) == expected


def test_other_arguments_are_as_python_has_them(llm: Any) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'nope'"):
        llm.generate("a", nope=1)


def test_names_in_the_tables_are_not_there(llm: Any, async_llm: Any) -> None:
    for owner in (llm, async_llm, LLM, AsyncLLM):
        for name, setting in LLM_NAMES.items():
            with pytest.raises(AttributeError) as caught:
                getattr(owner, name)
            text = f"has no attribute {name!r}, which is vLLM's: {setting.hint(str)}"
            assert str(caught.value).endswith(text)
    for owner in (RESULT, DELTA):
        for name, setting in RESULT_NAMES.items():
            with pytest.raises(AttributeError) as caught:
                getattr(owner, name)
            assert str(caught.value).endswith(setting.hint(str))
            assert (caught.value.name, caught.value.obj) == (name, owner)


def test_the_way_to_make_one_in_vllm() -> None:
    way = r"^type object 'AsyncLLM' has no attribute .*`await AsyncLLM\.start\(MODEL, \.\.\.\)`"
    with pytest.raises(AttributeError, match=way):
        AsyncLLM.from_engine_args(None)  # type: ignore[attr-defined]


def test_other_attributes_are_as_python_has_them(llm: Any) -> None:
    for owner in (llm, LLM, RESULT, DELTA):
        for name in ("nope", "_nope", "__nope__"):
            assert not hasattr(owner, name)
            with pytest.raises(AttributeError, match=rf"no attribute '{name}'$"):
                getattr(owner, name)


def test_one_result_is_not_a_list() -> None:
    with pytest.raises(TypeError, match=r"chat returns one result, .* result\.choices"):
        RESULT[0]


def test_parameters_are_given_by_name() -> None:
    with pytest.raises(TypeError, match=r"by name: SamplingParams\(temperature=0\.8\)"):
        SamplingParams(0.8, 0.95)  # type: ignore[call-arg]


@pytest.mark.parametrize("key", ["prompt", "prompt_token_ids"])
def test_a_mapping_with_a_prompt_is_refused_with_what_to_give(llm: Any, key: str) -> None:
    for prompts in ({key: "a"}, [{key: "a"}]):
        with pytest.raises(RequestError, match=rf"\(integers\): give the value of '{key}' alone"):
            llm.generate(prompts, PARAMS)


def test_settings_are_read_as_flags_are() -> None:
    assert checked_config("LLM", "m", {"max_model_len": "8k"}).max_model_len == 8000
    assert checked_config("LLM", "m", {"max_model_len": "auto"}).max_model_len is None
    match = r"^LLM\(max_model_len='8q'\): expected an integer ≥ 1, or auto$"
    with pytest.raises(ConfigError, match=match):
        checked_config("LLM", "m", {"max_model_len": "8q"})


@pytest.mark.process
def test_dir_lists_what_the_package_offers() -> None:
    assert dir(headrace) == sorted(headrace.__all__)
    code = "import headrace; print(*dir(headrace))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == sorted(headrace.__all__)


@pytest.mark.parametrize("name", ["EngineDeadError", "HeadraceError", "RequestError"])
def test_errors_that_calls_raise_are_imported_from_the_package(name: str) -> None:
    assert name in headrace.__all__
    assert getattr(headrace, name) is getattr(errors, name)
