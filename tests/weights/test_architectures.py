"""Declarations of families against gguf-py's own tables, and what only one family's files say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.models import read_config
from headrace.weights.architectures import ARCHITECTURES, ROPE_FACTOR_NAMES
from headrace.weights.checkpoint import Checkpoint, Conventions, TokenizerData
from headrace.weights.conversion.convert import write_gguf, write_hf_folder
from headrace.weights.gguf.metadata import metadata_of_config
from headrace.weights.gguf.writer import write_gguf_file
from headrace.weights.open import open_checkpoint
from headrace.weights.tensors.source import source_of_array
from headrace.weights.tensors.tensor import Tensor
from tests.tiny import tiny_checkpoint, tiny_config, write_tiny_gguf, write_tiny_hf
from tests.tiny_families import tiny_family_names

FAMILIES = [name for name in tiny_family_names() if name in ARCHITECTURES]

GGUF_KEYS = {
    value.removeprefix("{arch}.")
    for group in (gguf.Keys.LLM, gguf.Keys.Attention, gguf.Keys.Rope, gguf.Keys.Attention.Indexer)
    for key, value in vars(group).items()
    if isinstance(value, str) and not key.startswith("_")
}

NEWER = {"deepseek32", "minimax-m3"} - set(gguf.MODEL_ARCH_NAMES.values())
"""Architectures of llama.cpp that the gguf-py of a package does not have yet."""
NAMED = [name for name in FAMILIES if ARCHITECTURES[name].name not in NEWER]


def test_every_family_has_a_declaration_and_the_other_way_round() -> None:
    assert set(FAMILIES) == set(ARCHITECTURES)


@pytest.mark.parametrize("silent", [..., None])
def test_heads_of_a_silent_config_are_written_as_wide_as_it_is_read(silent: Any) -> None:
    """By key and by null: llama.cpp takes hidden / heads where a file has no width."""
    compared = set()
    for family in FAMILIES:
        architecture, config = ARCHITECTURES[family], tiny_config(family)
        if not architecture.rope or architecture.latent:
            continue
        config["hidden_size"] = 640
        if "query_pre_attn_scalar" in config:
            config["query_pre_attn_scalar"] = 256.0
        if config.pop("head_dim", None) is not None and silent is None:
            config["head_dim"] = None
        try:
            entries = metadata_of_config(config, architecture).entries
        except UnsupportedModelError as error:
            assert family == "glm" and "head_dim = 128" in str(error)
            continue
        read = read_config(
            Checkpoint(Path("x"), "safetensors", config, Conventions(), {}, TokenizerData("none"))
        )
        name, shape = architecture.name, read.attention
        key = f"{name}.attention.key_length"
        assert entries.get(f"{key}_swa", entries[key]) == shape.head_dim, family
        compared.add(family)
    assert len(compared) > 35 and {"qwen3", "gemma3_text", "gpt_oss"} <= compared


@pytest.mark.parametrize(
    ("family", "key", "value"),
    [
        ("ernie4_5_moe", "moe_norm_min", 0.1),
        ("gemma3_text", "rope_parameters", {"rope_type": "linear", "factor": 2.0}),
        ("glm_moe_dsa", "mlp_layer_types", ["sparse", "dense", "sparse"]),
        ("glm_moe_dsa", "num_experts", 4),
        ("gpt_oss", "experts_per_token", 2),
        ("gpt_oss", "initial_context_length", 128),
        ("hunyuan_v1_moe", "routed_scaling_factor", 2.5),
        ("llama", "hidden_act", []),
        ("mimo_v2_flash", "hybrid_layer_pattern", [0, 2, 0]),
        ("mimo_v2_flash", "layer_types", ["full_attention", "chunked", "full_attention"]),
        ("mimo_v2_flash", "moe_layer_freq", [0, 2, 1]),
        ("mimo_v2_flash", "rope_parameters", {"rope_type": "default", "rope_theta": 1e6}),
        ("minimax_m3", "moe_layer_freq", [0, 2, 1]),
        ("nemotron-nas", "block_configs", [1, 2, 3]),
        ("step3p7", "rope_parameters", {"rope_type": "default", "rope_theta": 1e6}),
    ],
)
def test_what_stops_the_load_of_a_folder_is_not_written_either(
    family: str, key: str, value: Any
) -> None:
    """Both by the key's name: a GGUF file would mean what its folder could not say."""
    config = {**tiny_config(family), key: value}
    with pytest.raises(UnsupportedModelError, match=key):
        metadata_of_config(config, ARCHITECTURES[family])
    with pytest.raises(UnsupportedModelError, match=key):
        read_config(
            Checkpoint(Path("x"), "safetensors", config, Conventions(), {}, TokenizerData("none"))
        )


@pytest.mark.parametrize("family", NAMED)
def test_names_are_gguf_py_s_both_ways(family: str) -> None:
    """Also where its table knows a tensor by another family's name: what the file says decides."""
    architecture = ARCHITECTURES[family]
    (arch,) = (a for a, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture.name)
    table = gguf.get_tensor_name_map(arch, 3)
    stored = {gguf.TENSOR_NAMES[kind] for kind in gguf.MODEL_TENSORS[arch]}
    for name in tiny_checkpoint(family).tensors:
        place = architecture.expert_place(name)
        if place is None:
            ours = architecture.gguf_name(name)
            assert architecture.canonical_name(ours) == name
            stated = name.replace("e_score_correction_bias", "e_score_correction.bias")
            stated = stated.replace("self_attn.sinks", "self_attn.sinks.weight")
            stated = stated.replace("moe.router_bias", "moe.router_bias.bias")
            for vector in ("layer_scalar", "attention_sink_bias"):
                stated = stated.replace(vector, f"{vector}.weight")
        else:
            ours, index = place
            names = architecture.expert_names(ours)
            assert [part.format(index) for part in names] == [name]
            stated = name.replace(f".experts.{index}.", ".experts.")
        module = ours.rsplit(".", 1)[0]
        known = {pattern.format(bid=bid) for pattern in stored for bid in range(3)}
        assert module in known, name
        theirs = table.get_name(stated, try_suffixes=(".weight", ".bias"))
        assert theirs in (ours, None), name


@pytest.mark.parametrize("family", FAMILIES)
def test_keys_are_gguf_py_s(family: str) -> None:
    for key in ARCHITECTURES[family].keys:
        assert key.gguf in GGUF_KEYS, key


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_comes_back_from_gguf_as_the_same_model(family: str, tmp_path: Path) -> None:
    """Config and values, through both writers; the same tensors bit for bit."""
    from headrace.models import read_config

    first = tiny_checkpoint(family)
    middle = open_checkpoint(write_tiny_gguf(tmp_path, family))
    result = write_hf_folder(middle, tmp_path / "out")
    assert not [note for note in result.notes if "tokenizer.json" not in note]
    back = open_checkpoint(tmp_path / "out")
    assert back.conventions == first.conventions
    assert set(back.tensors) == set(first.tensors)
    # Norms stored less one are the same where they are computed with, with one added.
    offset = np.float32(first.conventions.norm_offset)
    for name, tensor in back.tensors.items():
        added = offset if name.endswith("norm.weight") else np.float32(0)
        assert np.array_equal(tensor.to_f32() + added, first.tensors[name].to_f32() + added), name
    configs = [read_config(item) for item in (first, middle, back)]
    for other in configs[1:]:
        for field in ("windows", "rotates", "rope", "local_rope", "attention", "norm_eps"):
            assert getattr(other, field) == getattr(configs[0], field), field


def opened(tmp_path: Path, family: str, changes: dict[str, Any]) -> Checkpoint:
    """A tiny GGUF file with changes to its own metadata (... removes a key), opened."""
    source = open_checkpoint(write_tiny_gguf(tmp_path, family))
    entries = {key: source.metadata.typed(key) for key in source.metadata}
    arch = source.metadata["general.architecture"]
    for key, value in changes.items():
        key = key if key.startswith("general.") else f"{arch}.{key}"
        if value is ...:
            del entries[key]
        else:
            entries[key] = value
    if "general.architecture" in changes:
        renamed = changes["general.architecture"]
        entries = {
            f"{renamed}.{key.removeprefix(f'{arch}.')}"
            if key.startswith(f"{arch}.")
            else key: value
            for key, value in entries.items()
        }
    architecture = ARCHITECTURES[family]
    path = tmp_path / "changed.gguf"
    tensors = [
        source_of_array(tensor.to_f32(), architecture.gguf_name(name))
        for name, tensor in source.tensors.items()
    ]
    write_gguf_file(path, entries, tensors)
    return open_checkpoint(path)


def test_llama_s_name_with_a_window_is_mistral(tmp_path: Path) -> None:
    with_window = opened(tmp_path, "mistral", {"attention.sliding_window": 24})
    assert with_window.config["model_type"] == "mistral"
    assert with_window.config["sliding_window"] == 24
    assert with_window.conventions.rope_layout == "interleaved"
    for none in (0, ...):
        without = opened(tmp_path, "mistral", {"attention.sliding_window": none})
        assert without.config["model_type"] == "llama"
        assert "sliding_window" not in without.config


def test_what_a_silent_file_of_command_r_means(tmp_path: Path) -> None:
    """llama.cpp leaves logits as they are; config.json scales them by 1/16."""
    assert opened(tmp_path, "cohere", {"logit_scale": ...}).config["logit_scale"] == 1.0


def test_command_r_s_own_length_is_written() -> None:
    config = tiny_config("cohere", max_position_embeddings=512, model_max_length=4096)
    entries = metadata_of_config(config, ARCHITECTURES["cohere"]).entries
    assert entries["command-r.context_length"] == 4096


def test_every_which_layer_sees_everything_may_be_a_number(tmp_path: Path) -> None:
    pattern = {"attention.sliding_window_pattern": 2, "block_count": 2}
    config = opened(tmp_path, "gemma3_text", pattern).config
    assert config["layer_types"] == ["sliding_attention", "full_attention"]


def test_gemma3_without_a_window_sees_everything(tmp_path: Path) -> None:
    config = opened(tmp_path, "gemma3_text", {"attention.sliding_window": ...}).config
    assert set(config["layer_types"]) == {"full_attention"}


@pytest.mark.parametrize(("stated", "factor"), [(0.8782488, 1.0), (1.25, 1.25), (0.9, 0.9)])
def test_yarn_s_factor_of_attention_multiplies_where_that_undoes_yarn_s_own(
    tmp_path: Path, stated: float, factor: float
) -> None:
    """llama.cpp's converter has one key for what are two in config.json."""
    from headrace.models import read_config

    scaling = {
        "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 64, "rope.scaling.yarn_attn_factor": stated,
    }  # fmt: skip
    rope = read_config(opened(tmp_path, "qwen3", scaling)).rope
    assert rope is not None and rope.attention_factor == pytest.approx(factor, abs=1e-6)


def test_mistral3_is_mistral_without_a_window(tmp_path: Path) -> None:
    name = {"general.architecture": "mistral3"}
    plain = opened(tmp_path, "mistral", {"attention.sliding_window": ..., **name})
    assert plain.config["model_type"] == "mistral"
    assert plain.config["sliding_window"] is None
    for none in (0.0, ...):
        silent = opened(tmp_path, "ministral3", {"attention.temperature_scale": none})
        assert silent.config["model_type"] == "mistral"
        assert silent.config["rope_scaling"]["rope_type"] == "yarn"


def test_what_scales_yarn_s_factor_is_written_and_read_as_llama_cpp_has_it(tmp_path: Path) -> None:
    """It knows the logarithm's multiplier alone, and takes `mscale` as 1."""
    from headrace.models import read_config

    own, log = "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_log_multiplier"
    entries = open_checkpoint(write_tiny_gguf(tmp_path, "ministral3")).metadata
    assert (entries[f"mistral3.{log}"], entries[f"mistral3.{own}"]) == (1.0, 1.0)
    for changes, factor in (
        ({own: ...}, 1.0),
        ({own: ..., log: 2.0}, (0.1 * np.log(16) + 1) / (0.2 * np.log(16) + 1)),
        ({own: ..., log: 0.0}, 0.1 * np.log(16) + 1),
        ({own: ..., log: ...}, 0.1 * np.log(16) + 1),
    ):
        config = read_config(opened(tmp_path, "ministral3", changes))
        assert config.query_scaling is not None and config.query_scaling.length == 24
        assert config.rope is not None
        assert config.rope.attention_factor == pytest.approx(factor, rel=1e-6)


def test_a_window_that_config_json_means_by_silence_is_written(tmp_path: Path) -> None:
    first = tiny_checkpoint("mistral")
    silent = {key: value for key, value in first.config.items() if key != "sliding_window"}
    for config, expected in ((silent, 4096), ({**silent, "sliding_window": None}, None)):
        object.__setattr__(first, "config", config)
        write_gguf(first, tmp_path / "m.gguf")
        metadata = open_checkpoint(tmp_path / "m.gguf").metadata
        assert metadata.get("llama.attention.sliding_window") == expected


def test_granite_s_scales(tmp_path: Path) -> None:
    """Where GGUF is silent llama.cpp scales scores by the width of a head, config.json by 1."""
    silent = opened(tmp_path, "granite", {"attention.scale": ..., "residual_scale": 0.0})
    assert silent.config["attention_multiplier"] == 16**-0.5
    assert "residual_multiplier" not in silent.config
    with pytest.raises(CheckpointError, match=r"'granite.logit_scale' is None"):
        opened(tmp_path, "granite", {"logit_scale": ...})
    # Elsewhere this key changes nothing; here false means that nothing is rotated.
    assert opened(tmp_path, "granite", {"rope.scaling.finetuned": True}).config == (
        opened(tmp_path, "granite", {}).config
    )
    unrotated = opened(tmp_path, "granite", {"rope.scaling.finetuned": False}).config
    assert unrotated["gguf.granite.rope.scaling.finetuned"] is False


@pytest.mark.parametrize(
    ("family", "changes", "pattern"),
    [
        ("smollm3", {"no_rope_layers": [1, 0]}, "no_rope_layers"),
        ("smollm3", {"no_rope_layer_interval": 3}, "no_rope_layer_interval = 3"),
        ("smollm3", {"use_sliding_window": True}, "'use_sliding_window' is True"),
        ("qwen2", {"use_sliding_window": True}, "'use_sliding_window' is True"),
        ("qwen2", {"attention_bias": False}, "'attention_bias' is False"),
        ("mistral", {"mlp_bias": True}, "'mlp_bias' is True"),
        ("granite", {"hidden_act": "gelu"}, "'hidden_act' is 'gelu'"),
    ],
)
def test_what_a_file_of_a_family_cannot_state_is_refused(
    tmp_path: Path, family: str, changes: dict[str, Any], pattern: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=pattern):
        write_tiny_gguf(tmp_path, family, **changes)


def test_longrope_is_told_by_its_tensors(tmp_path: Path) -> None:
    """Phi-3's converter writes two tensors and an attention factor, and names no kind."""
    source = open_checkpoint(write_tiny_gguf(tmp_path, "llama"))
    entries = {key: source.metadata.typed(key) for key in source.metadata}
    entries |= {
        "llama.rope.scaling.original_context_length": 64,
        "llama.rope.scaling.attn_factor": 1.25,
    }
    short, long = np.linspace(1, 2, 8, dtype=np.float32), np.linspace(2, 9, 8, dtype=np.float32)
    vectors = dict(zip(ROPE_FACTOR_NAMES[1:], (short, long), strict=True))
    named: dict[str, Tensor] = {
        ARCHITECTURES["llama"].gguf_name(name): tensor for name, tensor in source.tensors.items()
    }
    tensors = [source_of_array(tensor.to_f32(), name) for name, tensor in named.items()]
    tensors += [source_of_array(values, name) for name, values in vectors.items()]
    write_gguf_file(tmp_path / "wide.gguf", entries | {"llama.rope.dimension_count": 8}, tensors)
    with pytest.raises(
        CheckpointError, match=r"'rope_factors_short.weight' has shape \[8\]; 8 rot"
    ):
        open_checkpoint(tmp_path / "wide.gguf")
    write_gguf_file(tmp_path / "long.gguf", entries, tensors)
    config = open_checkpoint(tmp_path / "long.gguf").config
    scaling = config["rope_scaling"]
    assert scaling["rope_type"] == "longrope" and scaling["attention_factor"] == 1.25
    assert config["original_max_position_embeddings"] == 64
    assert np.array_equal(np.array(scaling["short_factor"], np.float32), short)
    assert np.array_equal(np.array(scaling["long_factor"], np.float32), long)


@pytest.mark.parametrize(
    ("family", "changes", "pattern"),
    [
        ("mistral", {"attention.sliding_window": [24, 24]}, None),
        ("mistral", {"attention.sliding_window": [24, 25]}, "differ by layer"),
        ("mistral", {"attention.sliding_window": "24"}, "sliding_window' is '24'"),
        ("granite", {"residual_scale": [1.0, 2.0]}, "residual_scale' is array"),
        ("llama", {"rope.scaling.type": "yarn", "rope.scaling.factor": 2.0,
                   "rope.scaling.yarn_beta_fast": [1.0]}, "yarn_beta_fast' is array"),
    ],
)  # fmt: skip
def test_values_of_another_type_are_named(
    tmp_path: Path, family: str, changes: dict[str, Any], pattern: str | None
) -> None:
    if pattern is None:
        assert opened(tmp_path, family, changes).config["sliding_window"] == 24
        return
    with pytest.raises(CheckpointError, match=pattern):
        opened(tmp_path, family, changes)


def test_folders_saved_without_their_head_get_their_prefix_back(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    folder = write_tiny_hf(tmp_path, "qwen2", tied=True)
    arrays = load_file(folder / "model.safetensors")
    bare = {name.removeprefix("model."): values for name, values in arrays.items()}
    save_file(bare, folder / "model.safetensors", metadata={"format": "pt"})
    checkpoint = open_checkpoint(folder)
    assert set(checkpoint.tensors) == set(arrays)
    assert all(name == tensor.name for name, tensor in checkpoint.tensors.items())
