"""A head at a start: found, held to its target, given its memory."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headrace.config.settings import EngineConfig
from headrace.engine.drafts.heads.head_drafts import HeadDrafts
from headrace.engine.drafts.load import open_draft
from headrace.engine.drafts.speculative_config import read_speculative_config
from headrace.engine.load import LoadedEngine, load_engine
from headrace.engine.memory.report import memory_report
from headrace.errors import CheckpointError, ConfigError, UnsupportedModelError
from headrace.models import load_model
from headrace.ops import make_ops
from headrace.weights.conversion.convert import convert_to_gguf
from headrace.weights.safetensors.writer import write_safetensors_file
from headrace.weights.tensors.source import TensorSource
from headrace.weights.tokenizer.data import TokenizerData
from tests.engine.mock import drain, submit
from tests.tiny import tiny_checkpoint, tiny_config, to_tensor, write_tiny_hf
from tests.tiny_heads import (
    AROUND,
    Around,
    dflash_config,
    eagle3_config,
    medusa_weights,
    mtp_checkpoint,
    write_dflash,
    write_eagle3,
    write_medusa,
    write_mtp_folder,
)


def loaded(target: Path, backend: str = "reference", **spec: object) -> LoadedEngine:
    stated = json.dumps({"adaptive": False, **spec}) if spec else "none"
    config = EngineConfig(
        model=str(target), speculative_config=stated, num_gpu_blocks_override=16,
        backend=backend, device="cpu",  # type: ignore[arg-type]
    )  # fmt: skip
    return load_engine(config)


def write_mtp(folder: Path, family: str = "mimo", count: int = 1, spoiled: str = "") -> Path:
    """A folder of a tiny model with layers for further tokens. spoiled: a tensor whose last value
    is NaN."""
    checkpoint = mtp_checkpoint(family, count=count)
    path = write_tiny_hf(folder, family, **AROUND.get(family, Around()).config)
    (path / "config.json").write_text(json.dumps(dict(checkpoint.config)), encoding="utf-8")
    tensors = list(checkpoint.tensors.values())
    for at, tensor in enumerate(tensors):
        if tensor.name == spoiled:
            values = tensor.to_f32()
            values.flat[-1] = np.nan
            tensors[at] = to_tensor(spoiled, values, "F32")
    write_safetensors_file(
        path / "model.safetensors",
        [TensorSource(item.name, item.shape, item.codec, lambda item=item: [item.data])  # type: ignore[misc]
         for item in tensors],
    )  # fmt: skip
    return path


def answer(engine: LoadedEngine) -> list[int]:
    engine.core.submit(submit("r", list(range(40)), max_tokens=30))
    return drain(engine.core)["r"].token_ids


@pytest.mark.parametrize(
    ("spec", "backend"),
    [
        ({"method": "mtp"}, "reference"),
        ({"method": "auto", "mtp": True}, "reference"),
        pytest.param({"method": "mtp"}, "torch", marks=pytest.mark.torch),
    ],
)
def test_a_model_s_own_layer_is_loaded_and_counted(
    spec: dict[str, object], backend: str, tmp_path: Path
) -> None:
    if backend == "torch":
        pytest.importorskip("torch", reason="the torch backend needs PyTorch")
    target = write_mtp(tmp_path)
    engine = loaded(target, backend, **spec)
    info = engine.core.info()
    assert info.draft_model_type == "mimo_mtp"
    (line,) = [line for line in memory_report(info) if line.startswith("draft model")]
    assert line.startswith("draft model (mimo_mtp): ")
    assert answer(engine) == answer(loaded(target, backend))
    assert engine.core.stats().spec_draft_tokens > 0 == engine.core.stats().spec_draft_failures


@pytest.mark.parametrize("family", ["mimo_v2_flash", "step3p7", "ernie4_5_moe", "qwen3"])
def test_layers_of_other_families_are_loaded(family: str, tmp_path: Path) -> None:
    count = 1 if family in ("ernie4_5_moe", "qwen3") else 3
    target = write_mtp(tmp_path, family, count)
    engine = loaded(target, method="mtp", num_speculative_tokens=4)
    assert engine.core.info().draft_model_type == f"{family}_mtp"
    assert answer(engine) == answer(loaded(target))
    assert engine.core.stats().spec_draft_tokens > 0 == engine.core.stats().spec_draft_failures
    fewer = loaded(target, method="mtp", num_speculative_tokens=1).core.info()
    assert (fewer.draft_weight_bytes < engine.core.info().draft_weight_bytes) is (count > 1)


@pytest.mark.parametrize("kind", ["layers alone", "folder", "gguf"])
def test_layers_for_further_tokens_come_from_a_place_of_their_own(
    kind: str, tmp_path: Path
) -> None:
    """Beside a model that has none."""
    family = "qwen3" if kind == "layers alone" else "glm4_moe"
    target = write_tiny_hf(tmp_path / "model", family)
    if kind == "layers alone":
        checkpoint = mtp_checkpoint(family)
        config = {**checkpoint.config, "architectures": ["Qwen3MTP"]}
        offsets = np.arange(144, dtype=np.int64)
        path = write_mtp_folder(tmp_path / "own", checkpoint, config=config, offsets=offsets)
    else:
        path = write_mtp(tmp_path / "own", family)
    if kind == "gguf":
        convert_to_gguf(path, tmp_path / "own.gguf", "Q8_0")
        path = tmp_path / "own.gguf"
    engine = loaded(target, method="mtp", model=str(path), num_speculative_tokens=4)
    info = engine.core.info()
    assert info.draft_model_type == f"{family}_mtp" and 0 < info.draft_weight_bytes < 400_000
    assert answer(engine) == answer(loaded(target))
    assert engine.core.stats().spec_draft_tokens > 0 == engine.core.stats().spec_draft_failures
    if kind == "layers alone":  # it says itself what it is
        assert loaded(target, model=str(path)).core.info().draft_model_type == "qwen3_mtp"


@pytest.mark.parametrize("spec", [{"method": "eagle3"}, {}, {"method": "auto"}])
def test_a_head_is_known_by_its_folder(spec: dict[str, object], tmp_path: Path) -> None:
    target = write_tiny_hf(tmp_path, "llama")
    head = write_eagle3(tmp_path / "head", eagle3_config(tiny_config("llama")))
    engine = loaded(target, model=str(head), **spec)
    assert engine.core.info().draft_model_type == "eagle3"
    assert 0 < engine.core.info().draft_weight_bytes < 400_000 and engine.core.info().draft_kv_bytes
    assert answer(engine) == answer(loaded(target))
    assert engine.core.stats().spec_draft_tokens > 0 == engine.core.stats().spec_draft_failures


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    target = write_tiny_hf(tmp_path, "llama")
    head = write_eagle3(tmp_path / "head", eagle3_config(tiny_config("llama")))
    for spec, words in (
        (
            {"method": "draft_model", "model": str(head)},
            "is a head for method eagle3, and method is draft_model; use eagle3",
        ),
        ({"method": "dflash", "model": str(head)}, "for method eagle3, and method is dflash"),
        ({"method": "dflash"}, "dflash without a model; give model, the folder of a DFlash head"),
        ({"method": "eagle3"}, "eagle3 without a model; give model, the folder of an EAGLE-3 head"),
        ({"method": "mtp"}, "layers of llama for further tokens are not run"),
        ({"method": "mtp", "model": str(head)}, "is a head for method eagle3, and method is mtp"),
        ({"method": "ngram", "mtp": True}, "mtp is true"),
    ):
        with pytest.raises(ConfigError, match=words):
            loaded(target, **spec)
    with pytest.raises(UnsupportedModelError, match="num_hidden_layers = 2"):
        loaded(target, method="eagle3", model=str(target))


@pytest.mark.parametrize("spec", [{"method": "dflash"}, {}, {"method": "auto"}])
def test_a_block_head_is_known_by_its_folder(spec: dict[str, object], tmp_path: Path) -> None:
    target = write_tiny_hf(tmp_path, "llama")
    folder = write_dflash(tmp_path / "head", dflash_config(tiny_config("llama")))
    engine = loaded(target, model=str(folder), **spec)
    info = engine.core.info()
    assert info.draft_model_type == "dflash" and info.draft_kv_bytes
    assert 0 < info.draft_weight_bytes < 400_000  # no table and no head of its own
    assert answer(engine) == answer(loaded(target))
    assert engine.core.stats().spec_draft_tokens > 0 == engine.core.stats().spec_draft_failures
    fewer = loaded(target, model=str(folder), num_speculative_tokens=2)
    assert answer(fewer) == answer(engine)
    assert 0 < fewer.core.stats().spec_draft_tokens < engine.core.stats().spec_draft_tokens


@pytest.mark.parametrize("spec", [{"method": "medusa"}, {}])
def test_medusa_heads_are_loaded(spec: dict[str, object], tmp_path: Path) -> None:
    target = write_tiny_hf(tmp_path, "llama")
    stated = {"medusa_num_heads": 3, "medusa_num_layers": 1}
    folder = write_medusa(tmp_path / "heads", stated, medusa_weights(64, 288, 3, 1))
    engine = loaded(target, model=str(folder), **spec)
    assert engine.core.info().draft_model_type == "medusa"
    assert answer(engine) == answer(loaded(target))
    assert engine.core.stats().spec_draft_tokens > 0 == engine.core.stats().spec_draft_failures


def test_a_block_head_of_other_widths_or_that_never_works_is_refused(tmp_path: Path) -> None:
    target = write_tiny_hf(tmp_path, "llama")
    config = dflash_config(tiny_config("llama"))
    for name, change, spoiled, words in (
        ("wide", {"target_hidden_size": 96}, {}, "features of 96 values"),
        ("deep", {"num_target_layers": 9}, {}, "num_target_layers = 9"),
        ("never", {}, {"norm.weight": np.full(64, np.nan, np.float32)}, "norm.weight holds NaN"),
    ):
        folder = write_dflash(tmp_path / name, config, **spoiled)
        (folder / "config.json").write_text(json.dumps({**config, **change}), encoding="utf-8")
        with pytest.raises((CheckpointError, ConfigError, UnsupportedModelError), match=words):
            loaded(target, model=str(folder), method="dflash")


@pytest.mark.parametrize("name", ["input_proj", "hidden_layernorm", "mlp.down_proj"])
def test_a_model_s_own_layer_with_nan_is_refused_by_name(name: str, tmp_path: Path) -> None:
    target = write_mtp(tmp_path, spoiled=f"model.mtp_layers.0.{name}.weight")
    words = rf"the layer for further tokens cannot be used: .*\.{name}\.weight holds NaN"
    with pytest.raises(CheckpointError, match=words):
        loaded(target, method="mtp")


@pytest.mark.parametrize("name", ["0.0.linear.weight", "1.0.linear.bias", "1.1.weight"])
def test_medusa_heads_with_nan_are_refused_by_name(name: str, tmp_path: Path) -> None:
    target = write_tiny_hf(tmp_path, "llama")
    weights = medusa_weights(64, 288, 2, 1)
    weights[name].flat[-1] = np.nan
    stated = {"medusa_num_heads": 2, "medusa_num_layers": 1}
    folder = write_medusa(tmp_path / "heads", stated, weights)
    with pytest.raises(CheckpointError, match=rf"cannot be used: .*{name} holds NaN"):
        loaded(target, model=str(folder))


def head_stating(kind: str, folder: Path, vocab: int) -> Path:
    """The folder of a head whose config.json states such a `vocab_size`, whatever its weights."""
    config = (dflash_config if kind == "dflash" else eagle3_config)(tiny_config("llama"))
    (write_dflash if kind == "dflash" else write_eagle3)(folder, config)
    stated = {**config, "vocab_size": vocab}
    if kind == "speculators":
        nested = {"model_type", "vocab_size", "hidden_size"}
        layer = {key: stated.pop(key) for key in nested}
        stated |= {"speculators_model_type": "eagle3", "transformer_layer_config": layer}
    (folder / "config.json").write_text(json.dumps(stated), encoding="utf-8")
    return folder


@pytest.mark.parametrize("kind", ["eagle3", "speculators", "dflash"])
def test_a_head_of_another_vocabulary_is_refused(kind: str, tmp_path: Path) -> None:
    """Fewer rows of padding than the target has are no other vocabulary."""
    checkpoint = tiny_checkpoint("llama")
    padded = tiny_config("llama")["vocab_size"]
    ids = padded - 8
    ops = make_ops("reference")
    target = load_model(checkpoint, ops)
    tokens = TokenizerData("gguf", gguf={"tokens": ["x"] * ids})
    beside = replace(checkpoint, tokenizer=tokens)
    for number, fits in ((999, False), (ids - 1, False), (ids, True), (padded, True)):
        folder = head_stating(kind, tmp_path / str(number), number)
        spec = read_speculative_config(json.dumps({"model": str(folder)}))
        opened = open_draft(spec, beside, EngineConfig(model="x"))
        assert opened is not None
        with (
            nullcontext()
            if fits
            else pytest.raises(
                CheckpointError,
                match=rf"{number}/config\.json: vocab_size is {number}, and the model's is "
                rf"{padded}, {ids} without padding; .* Use one that was made for",
            )
        ):
            opened.load(target, ops, EngineConfig(model="x"))


def test_a_head_of_other_widths_or_that_never_works_is_refused(tmp_path: Path) -> None:
    target = write_tiny_hf(tmp_path, "llama")
    config = eagle3_config(tiny_config("llama"))
    wide = write_eagle3(tmp_path / "wide", {**config, "target_hidden_size": 96})
    with pytest.raises(
        CheckpointError, match=r"the head .* cannot be used: .*features of 96 values"
    ):
        loaded(target, model=str(wide))
    spoiled = {"norm.weight": np.full(64, np.nan, np.float32)}
    never = write_eagle3(tmp_path / "never", config, **spoiled)
    with pytest.raises(
        CheckpointError, match=r"the head .* cannot be used: .*norm.weight holds NaN"
    ):
        loaded(target, model=str(never))


def test_heads_are_what_makes_the_drafts(tmp_path: Path) -> None:
    engine = loaded(write_mtp(tmp_path), method="mtp")
    assert isinstance(engine.core._draft, HeadDrafts)
    assert engine.core.info().draft_weight_bytes < 300_000  # no table and no head of its own
