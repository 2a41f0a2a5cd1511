"""The model's own sampling defaults: read from its files, checked by name, given to requests."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.embedded import embedded_model
from headrace.engine.params import MODEL_DEFAULTS, SAMPLERS, SamplingParams
from headrace.engine.sampling.defaults import (
    completed,
    described,
    in_full,
    model_defaults,
    sampling_defaults,
    stated_defaults,
)
from headrace.errors import ConfigError
from headrace.weights.open import open_checkpoint
from tests.tiny import tiny_checkpoint

QWEN = {
    "bos_token_id": 151643, "do_sample": True, "eos_token_id": [151645, 151643],
    "pad_token_id": 151643, "repetition_penalty": 1.05, "temperature": 0.7, "top_k": 20,
    "top_p": 0.8, "max_new_tokens": 2048, "transformers_version": "4.51.0",
}  # fmt: skip
USED = {"temperature": 0.7, "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.05}
NONE_GIVEN = dict.fromkeys(MODEL_DEFAULTS)


def test_what_generation_config_recommends_is_in_force_by_default() -> None:
    checkpoint = replace(tiny_checkpoint(), generation_config=QWEN)
    assert sampling_defaults(checkpoint, "auto") == USED
    assert type(model_defaults(checkpoint)["top_k"]) is int
    assert described(USED) == "temperature 0.7, top_k 20, top_p 0.8, repetition_penalty 1.05"


@pytest.mark.parametrize("setting", ["vllm", "none"])
def test_neutral_values_are_one_word_away(setting: str) -> None:
    checkpoint = replace(tiny_checkpoint(), generation_config=QWEN)
    assert sampling_defaults(checkpoint, setting) == {}
    assert SamplingParams(**completed(NONE_GIVEN, {}, SAMPLERS)) == SamplingParams()


def test_a_gguf_file_names_them_in_its_metadata() -> None:
    assert model_defaults(open_checkpoint(embedded_model())) == {"temperature": 0.6, "top_p": 0.9}


@pytest.mark.parametrize("named", ["generation_config.json", ""])
def test_a_file_or_its_folder_may_be_named(tmp_path: Path, named: str) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps(QWEN))
    assert stated_defaults(str(tmp_path / named)) == USED
    assert sampling_defaults(tiny_checkpoint(), str(tmp_path / named)) == USED


@pytest.mark.parametrize(
    ("name", "value", "limit"),
    [
        ("temperature", -0.5, "0 to 10000"),
        ("temperature", "0.7", "0 to 10000"),
        ("temperature", True, "0 to 10000"),
        ("temperature", float("nan"), "0 to 10000"),
        ("temperature", [0.7], "0 to 10000"),
        ("top_k", 20.5, "an integer, -1 or more"),
        ("top_k", -2, "an integer, -1 or more"),
        ("top_k", float("inf"), "an integer, -1 or more"),
        ("top_p", 1.5, "0 to 1"),
        ("min_p", {}, "0 to 1"),
        ("repetition_penalty", 0, "0.001 to 1000"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, value: Any, limit: str
) -> None:
    """The model still loads, without that default; a file that was named by the user is refused."""
    stated = {**QWEN, name: value}
    defaults = model_defaults(replace(tiny_checkpoint(), generation_config=stated))
    assert defaults == {key: number for key, number in USED.items() if key != name}
    assert f"generation_config.json: {name} is {value!r}; it must be {limit}" in caplog.text
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps(stated))
    with pytest.raises(ConfigError) as refused:
        stated_defaults(str(path))
    assert f"--generation-config: {path}: {name} is " in str(refused.value)
    assert limit in str(refused.value)


def test_a_gguf_key_is_named_as_the_file_has_it(caplog: pytest.LogCaptureFixture) -> None:
    checkpoint = replace(
        tiny_checkpoint(layout="interleaved"), generation_config={"temperature": "hot"}
    )
    assert model_defaults(checkpoint) == {}
    assert "general.sampling.temp: temperature is 'hot'" in caplog.text


@pytest.mark.parametrize("content", [None, "[]", "{"])
def test_a_path_without_a_config_is_refused_with_what_is_accepted(
    tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "generation_config.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=r"generation_config\.json: .*auto, vllm, none, or"):
        stated_defaults(str(path))


def test_values_of_a_request_win_and_null_is_the_neutral_value() -> None:
    given = {**NONE_GIVEN, "temperature": 0.0, "top_k": 0}
    assert completed(given, {**USED}, SAMPLERS) == {
        "temperature": 0.0, "top_k": 0, "top_p": 0.8, "repetition_penalty": 1.05,
    }  # fmt: skip
    null = replace(tiny_checkpoint(), generation_config={"temperature": None, "top_k": 20.0})
    assert model_defaults(null) == {"top_k": 20}


def test_a_step_that_a_request_omits_takes_no_default() -> None:
    """Otherwise `samplers` without that step would be refused for a value nobody gave."""
    assert completed(NONE_GIVEN, USED, ("top_k", "temperature")) == {
        "top_k": 20,
        "temperature": 0.7,
    }
    assert completed(NONE_GIVEN, USED, ()) == {}


def test_all_values_in_force_are_shown() -> None:
    assert in_full({"temperature": 0.6}) == {
        "temperature": 0.6, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0,
    }  # fmt: skip
    assert in_full({}).keys() == set(MODEL_DEFAULTS)


def test_a_path_too_long_for_the_file_system() -> None:
    with pytest.raises(ConfigError, match=r"--generation-config .*File name too long"):
        stated_defaults("a" * 5000)
