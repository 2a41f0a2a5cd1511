"""Frequencies of each rope kind."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from headrace.errors import HeadraceError, UnsupportedModelError
from headrace.models.rope import RopeConfig, rotation
from headrace.weights.model_config.config_reader import ConfigReader

LLAMA3 = RopeConfig(5e5, "llama3", 8.0, 1.0, 4.0, 8192)
PLAIN = RopeConfig(theta=10000.0)

KINDS: dict[str, dict[str, Any]] = {
    "linear": {"factor": 4.0},
    "llama3": {
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 256,
    },
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 256},
    "yarn-whole": {
        "factor": 40.0, "original_max_position_embeddings": 512, "beta_fast": 24.0,
        "beta_slow": 2.0, "truncate": False,
    },
    "yarn-attention": {
        "factor": 8.0, "original_max_position_embeddings": 128, "attention_factor": 1.375,
    },
    "yarn-mscale": {
        "factor": 16.0, "original_max_position_embeddings": 128, "mscale": 0.707,
        "mscale_all_dim": 1.25,
    },
    "yarn-ratio": {"original_max_position_embeddings": 128},
    "longrope": {
        "original_max_position_embeddings": 256,
        "short_factor": [1.0 + 0.1 * i for i in range(16)],
        "long_factor": [2.0 + 0.7 * i for i in range(16)],
    },
    "longrope-attention": {
        "original_max_position_embeddings": 256, "attention_factor": 1.5, "factor": 16.0,
        "short_factor": [1.5] * 16, "long_factor": [9.0] * 16,
    },
    "dynamic": {"factor": 2.0},
}  # fmt: skip


def config_of(name: str) -> dict[str, Any]:
    return {
        "max_position_embeddings": 1024,
        "rope_theta": 50000.0,
        "rope_scaling": {"rope_type": name.split("-")[0], **KINDS[name]},
    }


def read(config: dict[str, Any], **options: Any) -> RopeConfig:
    reader = ConfigReader(config)
    rope = RopeConfig.read(reader, **options)
    reader.unused("max_position_embeddings")
    reader.finish()
    return rope


@pytest.mark.torch
@pytest.mark.parametrize("length", [100, 3000])
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_transformers_own(name: str, length: int) -> None:
    """Frequencies and attention factor, for lengths within what the model was trained for and
    beyond; dynamic and longrope differ by it."""
    pytest.importorskip("torch", reason="transformers computes frequencies with torch")
    transformers = pytest.importorskip("transformers", reason="the comparison needs transformers")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    kind = name.split("-")[0]
    theirs = transformers.LlamaConfig(
        hidden_size=128, num_attention_heads=4, max_position_embeddings=1024,
        rope_parameters={"rope_type": kind, "rope_theta": 50000.0, "factor": None, **KINDS[name]},
    )  # fmt: skip
    frequencies, attention = ROPE_INIT_FUNCTIONS[kind](theirs, "cpu", seq_len=length)
    ours = rotation(read(config_of(name)), 32, max_positions=length)
    np.testing.assert_allclose(ours.frequencies, frequencies.numpy(), rtol=2e-6)
    assert ours.attention_factor == pytest.approx(attention, rel=1e-7)


def test_default_and_linear() -> None:
    plain = rotation(PLAIN, 8).frequencies
    np.testing.assert_allclose(plain, [1, 1e-1, 1e-2, 1e-3], rtol=1e-15)
    assert np.array_equal(rotation(RopeConfig(1e4, "linear", 4.0), 8).frequencies, plain / 4)


def test_a_part_of_a_head_has_the_frequencies_of_that_width() -> None:
    part = RopeConfig(theta=10000.0, partial=0.5)
    assert part.rotary_dim(16) == 8
    assert np.array_equal(rotation(part, 16).frequencies, rotation(PLAIN, 8).frequencies)
    with pytest.raises(UnsupportedModelError, match=r"0.05 of head_dim 16 leaves 0 dimensions"):
        RopeConfig(theta=1e4, partial=0.05).rotary_dim(16)


def test_a_share_that_float32_rounds_down_is_of_whole_dimensions() -> None:
    share = float(np.float32(0.7))
    assert share * 60 < 42
    assert RopeConfig(1e4, partial=share).rotary_dim(60) == 42


def test_llama3_keeps_short_waves_and_slows_long_ones() -> None:
    plain = rotation(RopeConfig(theta=5e5), 128).frequencies
    scaled = rotation(LLAMA3, 128).frequencies
    wavelength = 2 * np.pi / plain
    short, long = wavelength < 8192 / 4, wavelength > 8192
    assert short.any() and long.any() and (~short & ~long).any()
    assert np.array_equal(scaled[short], plain[short])
    assert np.array_equal(scaled[long], plain[long] / 8)
    between = ~short & ~long
    blend = (8192 / wavelength[between] - 1) / 3
    expected = plain[between] * ((1 - blend) / 8 + blend)
    np.testing.assert_allclose(scaled[between], expected, rtol=1e-6)


def test_yarn_keeps_fast_turns_and_divides_slow_ones() -> None:
    rope = read(config_of("yarn"))
    scaled, plain = rotation(rope, 64).frequencies, rotation(RopeConfig(5e4), 64).frequencies
    turns = 256 * plain / (2 * np.pi)
    share = scaled / plain
    assert np.all(share[turns > 40] == 1) and (turns > 40).any()
    np.testing.assert_allclose(share[turns < 0.5], 1 / 4, rtol=1e-12)
    assert np.all(np.diff(share) <= 0)
    assert rope.attention_factor == pytest.approx(0.1 * np.log(4) + 1, rel=1e-7)


@pytest.mark.parametrize("original", [6, 100, 256, 4_000_000])
@pytest.mark.parametrize("truncate", [True, False])
def test_yarn_s_ramp_lies_between_whole_dimensions_or_not(truncate: bool, original: int) -> None:
    """From the dimension of 32 turns to that of 1, neither before the first nor after the last."""
    config = config_of("yarn")
    scaling = {"truncate": truncate, "original_max_position_embeddings": original}
    rope = read({**config, "rope_scaling": {**config["rope_scaling"], **scaling}})
    scaled, plain = rotation(rope, 64).frequencies, rotation(RopeConfig(5e4), 64).frequencies
    kept = (scaled / plain - 1 / 4) / (1 - 1 / 4)
    low, high = (32 * math.log(original / (2 * math.pi * n), 5e4) for n in (32, 1))
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, 63)
    # Of no width at 6: the first dimension alone is kept.
    width = high - low or 0.001
    expected = [1 - min(1.0, max(0.0, (at - low) / width)) for at in range(32)]
    assert original != 6 or expected == [1.0] + [0.0] * 31 or not truncate
    np.testing.assert_allclose(kept, expected, atol=1e-6)


def test_yarn_s_own_factor_may_be_multiplied_or_replaced() -> None:
    """DeepSeek-R1-0528-Qwen3-8B undoes it by `attn_factor`, which only multiplies."""
    own = read(config_of("yarn")).attention_factor
    assert own == pytest.approx(0.1 * math.log(4) + 1)

    def stated(**keys: Any) -> float:
        config = config_of("yarn")
        return read({**config, "rope_scaling": {**config["rope_scaling"], **keys}}).attention_factor

    assert stated(attn_factor=0.8782488562869419) == pytest.approx(1.0, abs=1e-6)
    assert stated(attention_factor=0.8782488562869419) == pytest.approx(0.8782488562869419)
    assert stated(finetuned=True) == stated(mscale=2.0) == stated(mscale_all_dim=2.0) == own
    with pytest.raises(UnsupportedModelError, match="attn_factor"):
        stated(attn_factor=0.9, attention_factor=1.2)


def test_longrope_is_decided_once_by_the_longest_request() -> None:
    rope = read(config_of("longrope"))
    plain = rotation(RopeConfig(5e4), 32).frequencies
    for length, stored in ((1, rope.short_factor), (256, rope.short_factor),
                           (257, rope.long_factor), (1024, rope.long_factor)):  # fmt: skip
        assert np.array_equal(
            rotation(rope, 32, max_positions=length).frequencies, plain / np.array(stored)
        )
    # sqrt(1 + ln(1024 / 256) / ln 256), whatever the length
    assert rope.attention_factor == pytest.approx(np.sqrt(1.25), rel=1e-7)
    with pytest.raises(UnsupportedModelError, match="long_factor has 16 numbers; 64 rotated"):
        rotation(rope, 64, max_positions=300)


def test_dynamic_grows_with_what_is_served_and_not_below_what_was_trained() -> None:
    rope = read(config_of("dynamic"))
    assert rope.original_max_positions == 1024
    plain = rotation(RopeConfig(5e4), 32).frequencies
    assert np.array_equal(rotation(rope, 32, max_positions=100).frequencies, plain)
    grown = rotation(rope, 32, max_positions=2048).frequencies
    theta = 5e4 * (2 * 2048 / 1024 - 1) ** (32 / 30)
    np.testing.assert_allclose(grown, rotation(RopeConfig(theta), 32).frequencies, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "reach"),
    [("linear", 1024), ("llama3", 1024), ("yarn", 1024), ("yarn-whole", 20480),
     ("longrope", 1024), ("dynamic", 2048)],
)  # fmt: skip
def test_how_far_a_model_reaches(name: str, reach: int) -> None:
    """yarn and dynamic: the factor times what was trained, where config.json states less."""
    assert read(config_of(name)).reach(1024) == reach


def test_stored_divisors_divide() -> None:
    """rope_freqs.weight: frequencies are divided by it; multiplying would pass on short prompts."""
    divisors = np.array([1, 2, 4, 8], np.float32)
    plain = rotation(PLAIN, 8).frequencies
    assert np.array_equal(rotation(PLAIN, 8, divisors=divisors).frequencies, plain / divisors)


def test_scaling_stated_twice_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="stated twice: llama3"):
        rotation(LLAMA3, 8, divisors=np.ones(4, np.float32))


def test_where_the_original_length_is_looked_for() -> None:
    """At the top (Phi-3), in the object, or else what the model reaches; as transformers."""
    config = config_of("yarn")
    assert read({**config, "original_max_position_embeddings": 64}).original_max_positions == 64
    assert read(config).original_max_positions == 256
    del config["rope_scaling"]["original_max_position_embeddings"]
    assert read(config).original_max_positions == 1024
    plain = {"rope_theta": 50000.0, "original_max_position_embeddings": 4096, "rope_scaling": None}
    assert read(plain) == RopeConfig(5e4)


def test_su_is_longrope() -> None:
    config = config_of("longrope")
    scaling = {"type": "su", **KINDS["longrope"]}
    assert read({**config, "rope_scaling": scaling}) == read(config)


PAIR = {"default_theta": 1e6, "default_local_theta": 1e4}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, (RopeConfig(1e6), RopeConfig(1e4))),
        (
            {"rope_theta": 5e5, "rope_local_base_freq": 5e3,
             "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
            (RopeConfig(5e5, "linear", 8.0), RopeConfig(5e3)),
        ),
        (
            {"rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5},
                "sliding_attention": {"rope_type": "default", "rope_theta": 5e3},
            }},
            (RopeConfig(5e5, "linear", 8.0), RopeConfig(5e3)),
        ),
        (
            {"rope_theta": 5e5, "rope_parameters": {"full_attention": {"rope_type": "default"}}},
            (RopeConfig(5e5), RopeConfig(1e4)),
        ),
    ],
)  # fmt: skip
def test_layers_with_a_window_may_have_a_rope_of_their_own(
    config: dict[str, Any], expected: tuple[RopeConfig, RopeConfig]
) -> None:
    reader = ConfigReader(config)
    assert RopeConfig.read_pair(reader, **PAIR) == expected
    reader.finish()


@pytest.mark.parametrize(
    "config",
    [
        {"rope_theta": 1e5, "rope_parameters": {"full_attention": {"rope_theta": 5e5}}},
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0},
         "rope_parameters": {"full_attention": {"rope_theta": 5e5}}},
        {"rope_parameters": {"full_attention": {"rope_theta": 5e5, "note": 1}}},
        {"rope_parameters": {"full_attention": {}, "chunked_attention": {"rope_theta": 1e5}}},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e5}},
        {"rope_parameters": {"full_attention": {"partial_rotary_factor": math.nan}}},
        {"rope_parameters": {"full_attention": {"partial_rotary_factor": 0.0}}},
    ],
)  # fmt: skip
def test_pairs_that_contradict_themselves_stop_the_load(config: dict[str, Any]) -> None:
    reader = ConfigReader(config)
    with pytest.raises(UnsupportedModelError):
        RopeConfig.read_pair(reader, **PAIR)
        reader.finish()


@pytest.mark.parametrize(
    ("kind", "changes", "scaling", "said"),
    [
        ("yarn", {"rope_theta": 1.0}, {}, "rope_theta = 1.0 .*above 1"),
        ("yarn", {"rope_theta": 0.5}, {}, "rope_theta = 0.5 .*above 1"),
        ("yarn", {"rope_theta": None}, {"rope_theta": 1.0}, "rope_theta = 1.0 .*above 1"),
        ("yarn-mscale", {}, {"mscale_all_dim": -4.0}, "mscale_all_dim is -4.0"),
        ("yarn-mscale", {}, {"mscale": -1.0}, "mscale is -1.0"),
        ("yarn-mscale", {}, {"mscale": None, "mscale_all_dim": -4.0}, "mscale_all_dim is -4.0"),
        ("yarn-mscale", {}, {"mscale": None, "mscale_all_dim": math.nan}, "mscale_all_dim is nan"),
        ("yarn", {}, {"factor": 3e38, "attn_factor": 3e38}, "attention factor is finite"),
        ("longrope", {}, {"original_max_position_embeddings": 1}, "= 1 .*at least 2"),
        (
            "yarn",
            {"max_position_embeddings": 10**400},
            {"factor": None},
            "must be at most 2147483647",
        ),
        ("yarn", {}, {"original_max_position_embeddings": 10**400}, "must be at most 2147483647"),
    ],
)
def test_numbers_no_rotation_follows_from_are_refused(
    kind: str, changes: dict[str, Any], scaling: dict[str, Any], said: str
) -> None:
    """They ended in a ZeroDivisionError or an OverflowError, or gave NaN."""
    config = config_of(kind)
    config = {**config, **changes, "rope_scaling": {**config["rope_scaling"], **scaling}}
    with pytest.raises(UnsupportedModelError, match=said):
        read(config)


def test_a_pair_with_yarn_of_theta_one_is_refused() -> None:
    both = {"full_attention": {"rope_type": "yarn", "rope_theta": 1.0, "factor": 4.0}}
    config = {"rope_parameters": both, "max_position_embeddings": 64}
    with pytest.raises(UnsupportedModelError, match=r"rope_theta = 1.0 .*above 1"):
        RopeConfig.read_pair(ConfigReader(config), **PAIR)


def test_dynamic_needs_more_than_one_pair_and_never_shrinks() -> None:
    rope = RopeConfig(1e4, "dynamic", 2.0, original_max_positions=64)
    with pytest.raises(UnsupportedModelError, match=r"2 dimensions of a head .*at least 4"):
        rotation(rope, 2, max_positions=128)
    # Where float64 has no room for the 1 that is added.
    huge = RopeConfig(1e4, "dynamic", 3e38, original_max_positions=64)
    assert np.array_equal(rotation(huge, 8).frequencies, rotation(PLAIN, 8).frequencies)


def test_any_numbers_give_finite_frequencies_or_are_refused() -> None:
    source = random.Random(5)
    odd = [0, -1, 1, 1.0000001, 0.5, 2, 1e-45, 3e38, 1e39, 10**400, math.nan, math.inf, None, True]
    lists = [[1.0] * 4, [1e-45, 3e38, 2.0, 1.0], [1.0], []]
    keys = ["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"]
    keys += ["beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor"]
    rotated = 0
    for _ in range(3000):
        kind = source.choice(["default", "linear", "dynamic", "llama3", "yarn", "longrope"])
        scaling = {key: source.choice(odd) for key in keys if source.random() < 0.4}
        if kind == "longrope":
            scaling |= {key: source.choice(lists) for key in ("short_factor", "long_factor")}
        config = {
            "rope_theta": source.choice([1e4, 1e4, *odd]),
            "max_position_embeddings": source.choice([1, 2, 1024, 10**30]),
            "rope_scaling": {"rope_type": kind, **scaling},
        }
        try:
            rope = RopeConfig.read(ConfigReader(config))
            rope.reach(64)
            found = rotation(rope, 8, max_positions=source.choice([None, 1, 10**6]))
        except HeadraceError:
            continue
        rotated += 1
        assert np.isfinite(found.frequencies).all(), config
        assert 0 < found.attention_factor < math.inf, config
    assert rotated > 300
