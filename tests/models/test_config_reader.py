"""What of a config stops a load, and what does not."""

from __future__ import annotations

import ast
import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from headrace.cli.options import collect, settings
from headrace.config.settings import EngineConfig
from headrace.errors import UnsupportedModelError
from headrace.models import DecoderConfig, read_config
from headrace.models.rope import RopeConfig
from headrace.weights.checkpoint import Checkpoint, Conventions, TokenizerData
from headrace.weights.model_config.config_reader import ConfigReader
from tests.tiny import Family, tiny_config


def read(config: dict[str, Any], ignore: tuple[str, ...] = ()) -> DecoderConfig:
    empty = Checkpoint(
        Path("x"), "safetensors", config, Conventions(), {}, TokenizerData(kind="none")
    )
    return read_config(empty, ignore_config_keys=ignore)


def refused(config: dict[str, Any], *words: str) -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        read(config)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_config_is_read(family: Family) -> None:
    config = read(tiny_config(family, head_dim=32, kv_heads=2))
    assert (config.model_type, config.num_layers, config.vocab_size) == (family, 2, 288)
    assert config.attention.num_kv_heads == 2
    assert config.attention_width == 128
    assert config.attention.scale == 32**-0.5
    assert config.tied is (family == "qwen3")


def test_defaults_are_those_of_the_family() -> None:
    widths = {"hidden_size": 64, "intermediate_size": 96}
    sizes = {**widths, "num_hidden_layers": 1, "num_attention_heads": 4}
    llama = read({"model_type": "llama", **sizes})
    assert (llama.attention.head_dim, llama.attention.num_kv_heads) == (16, 4)
    assert (llama.max_positions, llama.rope.theta, llama.tied) == (2048, 10000.0, None)
    assert (llama.vocab_size, llama.attention_bias, llama.mlp_bias) == (None, None, None)
    qwen3 = read({"model_type": "qwen3", **sizes})
    assert (qwen3.attention.head_dim, qwen3.max_positions) == (128, 32768)


def test_numbers_are_those_a_gguf_file_can_hold() -> None:
    """1e-5 in GGUF is the float32 nearest to it; both must give one model."""
    config = tiny_config()
    stored = {**config, "rms_norm_eps": 9.999999747378752e-06}
    assert read(config) == read(stored)


def test_an_unknown_key_stops_the_load_unless_listed() -> None:
    config = {**tiny_config(), "attention_sinks": 4, "hash_layers": {"a": 1}}
    refused(config, "attention_sinks = 4")
    assert read(config, ("attention_sinks", "hash_layers")) == read(tiny_config())


def test_the_remedy_for_unknown_keys_works_as_printed() -> None:
    config = {**tiny_config(), "attention_sinks": 4, "an odd 'key'": 1, "gguf.llama.x.y": 2}
    with pytest.raises(UnsupportedModelError) as caught:
        read(config)
    printed = str(caught.value).split("load with ")[1]
    flags, call = printed.split(", or LLM(..., ignore_config_keys=")

    @click.command(context_settings={"ignore_unknown_options": False})
    @settings(EngineConfig)
    @click.pass_context
    def command(ctx: click.Context, **_: object) -> None:
        ctx.obj = collect(ctx, EngineConfig)

    with command.make_context("headrace", shlex.split(flags)) as context:
        command.invoke(context)
        typed: EngineConfig = context.obj
    called = ast.literal_eval(call.removesuffix(")"))
    assert typed.ignore_config_keys == called == tuple(list(config)[-3:])
    assert read(config, called) == read(tiny_config())


def test_harmless_keys_pass() -> None:
    config = {
        **tiny_config(),
        "transformers_version": "5.23.0", "dtype": "bfloat16", "_name_or_path": "here",
        "pad_token_id": 0, "new_feature": None, "is_llama_config": True,
        "is_encoder_decoder": False, "pruned_heads": {}, "rope_interleaved": False,
    }  # fmt: skip
    assert read(config) == read(tiny_config())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("use_rope", False),
        ("is_causal", False),
        ("another_feature", False),
        ("nothing", 0),
        ("pretraining_tp", 2),
        ("rope_interleaved", True),
        ("add_cross_attention", True),
        ("pruned_heads", {"0": [1]}),
    ],
)
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_value_that_may_matter_stops_the_load(family: Family, key: str, value: Any) -> None:
    """Also where it is false: a model without rope says `use_rope: false`."""
    refused({**tiny_config(family), key: value}, f"{key} = {value!r}")
    rope = {"rope_type": "default", key: value}
    refused({**tiny_config(family), "rope_scaling": rope}, f"rope_scaling.{key} = {value!r}")


@pytest.mark.parametrize(
    ("family", "change", "words"),
    [
        ("llama", {"hidden_act": "gelu"}, ("hidden_act = 'gelu'", "'silu'")),
        ("llama", {"sliding_window": 4096}, ("sliding_window = 4096", "null")),
        ("llama", {"partial_rotary_factor": 0.5}, ("partial_rotary_factor = 0.5", "1.0")),
        ("llama", {"num_key_value_heads": 3}, ("num_key_value_heads = 3", "divisors")),
        ("llama", {"head_dim": 15}, ("head_dim = 15", "even")),
        ("llama", {"head_dim": None, "hidden_size": 66}, ("hidden_size = 66", "multiples")),
        ("llama", {"num_hidden_layers": 0}, ("num_hidden_layers is 0", "at least 1")),
        ("llama", {"hidden_size": "64"}, ("hidden_size is '64'", "whole number")),
        ("llama", {"hidden_size": True}, ("hidden_size is True", "whole number")),
        ("llama", {"hidden_size": None}, ("hidden_size is missing",)),
        ("llama", {"attention_bias": 1}, ("attention_bias is 1", "true or false")),
        ("llama", {"quantization_config": {"bits": 4}}, ("quantization_config",)),
        ("llama", {"rms_norm_eps": 0}, ("rms_norm_eps is 0.0", "above 0")),
        ("llama", {"rms_norm_eps": float("nan")}, ("rms_norm_eps is nan",)),
        ("llama", {"rope_theta": 10**400}, ("rope_theta is inf",)),
        ("qwen3", {"use_sliding_window": True}, ("use_sliding_window = True", "False")),
        ("qwen3", {"layer_types": ["full_attention", "sliding_attention"]}, ("layer_types",)),
        ("qwen3", {"layer_types": ["full_attention"]}, ("layer_types", "2 times")),
        ("qwen3", {"layer_types": 2}, ("layer_types = 2", "2 times")),
        ("gemma2", {"layer_types": [["full_attention"], {}]}, ("layer_types", "2 times")),
        ("smollm3", {"no_rope_layers": [[], {}, 1, 1]}, ("no_rope_layers", "0 or 1")),
        ("qwen3", {"mlp_bias": True}, ("mlp_bias = True",)),
        ("llama", {"model_type": "mamba"}, ("'mamba'", "llama", "qwen3")),
        ("llama", {"model_type": None}, ("model_type is missing",)),
    ],
)
def test_a_value_that_is_not_implemented_stops_the_load(
    family: Family, change: dict[str, Any], words: tuple[str, ...]
) -> None:
    refused({**tiny_config(family), **change}, *words)


def test_windows_that_are_switched_off_pass() -> None:
    full = ["full_attention"] * 2
    assert read({**tiny_config("qwen3"), "sliding_window": 4096, "layer_types": full})
    assert read({**tiny_config("llama"), "sliding_window": 4096, "use_sliding_window": False})


def rope(**keys: Any) -> RopeConfig:
    config = {key: value for key, value in tiny_config().items() if not key.startswith("rope")}
    return read({**config, **keys}).rope


LLAMA3 = {
    "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip


def test_rope_is_read_from_every_spelling() -> None:
    assert rope() == RopeConfig(theta=10000.0)
    assert rope(rope_theta=5e5) == RopeConfig(theta=5e5)
    assert rope(rope_parameters={"rope_theta": 5e5, "rope_type": "default"}) == rope(rope_theta=5e5)
    linear = RopeConfig(theta=10000.0, kind="linear", factor=2.0)
    assert rope(rope_scaling={"type": "linear", "factor": 2}) == linear
    assert rope(rope_scaling={"rope_type": "linear", "factor": 2.0}) == linear
    assert rope(rope_parameters={"rope_type": "linear", "factor": 2.0}) == linear
    llama3 = RopeConfig(5e5, "llama3", 8.0, 1.0, 4.0, 8192)
    assert rope(rope_theta=5e5, rope_scaling={"rope_type": "llama3", **LLAMA3}) == llama3
    newer = {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3}
    assert rope(rope_parameters=newer) == llama3
    assert rope(rope_parameters=newer, rope_scaling={"rope_type": "llama3", **LLAMA3}) == llama3


@pytest.mark.parametrize(
    ("scaling", "words"),
    [
        ({"rope_type": "spiral"}, "rope_scaling.rope_type = 'spiral'"),
        ({"type": "mrope", "factor": 4.0}, "supported: default, linear, dynamic, llama3, yarn"),
        ({"type": "dynamic", "factor": 4.0, "alpha": 1e3}, "rope_scaling.alpha = 1000.0"),
        ({"type": "yarn", "factor": 4.0, "beta_fast": 0.5}, "rope_scaling.beta_fast = 0.5"),
        ({"type": "longrope", "factor": 4.0, "short_factor": [1]}, "long_factor = None"),
        ({"type": "longrope", "short_factor": [0], "long_factor": [1]}, "short_factor.0 is 0.0"),
        ({"type": "linear"}, "rope_scaling.factor is missing"),
        ({"type": "linear", "factor": 0.5}, "rope_scaling.factor = 0.5"),
        ({"type": "linear", "factor": 2, "mscale": 1}, "rope_scaling.mscale = 1"),
        ({"rope_type": "llama3", **LLAMA3, "high_freq_factor": 0.5}, "high_freq_factor = 0.5"),
        ({"partial_rotary_factor": 0.25}, "partial_rotary_factor = 0.25"),
        ("linear", "rope_scaling is 'linear'; it must be an object"),
    ],
)
def test_rope_scaling_that_is_not_implemented_stops_the_load(scaling: Any, words: str) -> None:
    refused({**tiny_config(), "rope_scaling": scaling}, words)


def test_rope_said_twice_differently_stops_the_load() -> None:
    config = {**tiny_config(), "rope_scaling": None}
    refused({**config, "rope_parameters": {"rope_theta": 1e6}}, "rope_theta more than once")
    linear = {"type": "linear", "factor": 2}
    refused(
        {**config, "rope_parameters": {"rope_type": "default"}, "rope_scaling": linear},
        "contradict each other",
    )


def test_ignored_keys_may_be_nested() -> None:
    section = {"rope_scaling": {"rope_type": "default", "note": "x"}}
    reader = ConfigReader(section, ignore_keys=("rope_scaling.note",))
    inner = reader.section("rope_scaling")
    assert inner is not None and inner.get("rope_type", str, "") == "default"
    reader.finish()


def test_a_config_is_equal_only_to_the_same_model() -> None:
    config = read(tiny_config())
    assert config != replace(config, rope=RopeConfig(theta=1e6))


def test_real_configs_are_read_or_refused_by_name(shared_assets: Path) -> None:
    folder = shared_assets / "model-configs" / "hf-config"
    outcomes = {}
    for path in sorted(folder.glob("*_config.json")):
        if path.name.endswith("hf_quant_config.json"):
            continue
        try:
            outcomes[path.name.removesuffix("_config.json")] = read(json.loads(path.read_text()))
        except UnsupportedModelError as error:
            outcomes[path.name.removesuffix("_config.json")] = str(error)
    eight = outcomes["meta-llama--Meta-Llama-3.1-8B"]
    assert isinstance(eight, DecoderConfig)
    assert eight.rope == RopeConfig(5e5, "llama3", 8.0, 1.0, 4.0, 8192)
    assert (eight.attention.head_dim, eight.attention.num_kv_heads) == (128, 8)
    small = outcomes["Qwen--Qwen3-0.6B"]
    assert isinstance(small, DecoderConfig)
    assert (small.hidden_size, small.attention_width, small.rope.theta) == (1024, 2048, 1e6)
    supported = {name for name, outcome in outcomes.items() if isinstance(outcome, DecoderConfig)}
    assert supported == {
        *(f"Qwen--Qwen3-{size}" for size in ("0.6B", "1.7B", "8B", "32B")),
        *(f"meta-llama--Meta-Llama-3.1-{size}" for size in ("8B", "70B", "405B")),
        *(f"Qwen--Qwen3-{size}" for size in ("30B-A3B", "235B-A22B")),
        "Qwen--Qwen3-Coder-480B-A35B-Instruct",
        *(f"mistralai--Mixtral-{size}-v0.1" for size in ("8x7B", "8x22B")),
        *(f"openai--gpt-oss-{size}" for size in ("20b", "120b")),
        "MiniMaxAI--MiniMax-M3",
        "XiaomiMiMo--MiMo-7B-Base",
        "nvidia--Llama-3_3-Nemotron-Super-49B-v1",
        "stepfun-ai--Step-3.7-Flash",
        *(f"zai-org--GLM-{version}" for version in ("5", "5.1", "5.2")),
        *(f"MiniMaxAI--MiniMax-M2.{minor}" for minor in (5, 7)),
        *(f"Qwen--Qwen3-{size}-FP8" for size in ("32B", "30B-A3B", "235B-A22B")),
        "Qwen--Qwen3-32B-FP8-Static-PerTensor",
        "XiaomiMiMo--MiMo-V2-Flash",
        *(f"deepseek-ai--DeepSeek-{version}" for version in ("V3", "V3.2", "R1")),
        "moonshotai--Kimi-K2-Instruct",
        "stepfun-ai--Step-3.7-Flash-FP8",
        *(f"zai-org--GLM-{version}-FP8" for version in ("5", "5.1", "5.2")),
        # Only their tensors say what they are.
        *(f"nvidia--DeepSeek-V{version}-NVFP4" for version in ("3.1", "3.2")),
        "nvidia--GLM-5-NVFP4",
        "nvidia--Llama-3.1-70B-Instruct-FP8",
        "nvidia--Qwen3-235B-A22B-NVFP4",
        *(f"nvidia--GLM-{version}-NVFP4" for version in ("5.1", "5.2")),
        *(f"nvidia--MiniMax-M2.{minor}-NVFP4" for minor in (5, 7)),
    }
    assert "'deepseek_v4'" in str(outcomes["deepseek-ai--DeepSeek-V4-Flash"])
