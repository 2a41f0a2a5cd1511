"""A draft model at a start: found, held to its target's vocabulary, loaded, given its memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.config.settings import EngineConfig
from headrace.engine.drafts.model.same_tokens import check_same_tokens
from headrace.engine.drafts.speculative_config import read_speculative_config
from headrace.engine.load import LoadedEngine, load_engine
from headrace.engine.memory.draft_memory import plan_draft_cache
from headrace.engine.memory.kv_memory import plan_kv_cache
from headrace.engine.memory.report import memory_report
from headrace.errors import CheckpointError, ConfigError, HeadraceError
from headrace.weights.open import open_checkpoint
from tests.engine.mock import MockModel, drain, submit
from tests.tiny import tiny_checkpoint, write_tiny_gguf, write_tiny_hf


def loaded(target: Path, draft: Path | str, **settings: object) -> LoadedEngine:
    spec = {"method": "draft_model", "model": str(draft), "adaptive": False}
    given = {"num_gpu_blocks_override": 16, "backend": "reference", **settings}
    return load_engine(
        EngineConfig(model=str(target), speculative_config=json.dumps(spec), **given)  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("backend", ["reference", pytest.param("torch", marks=pytest.mark.torch)])
def test_a_draft_is_loaded_beside_its_target_and_counted(tmp_path: Path, backend: str) -> None:
    if backend == "torch":
        pytest.importorskip("torch", reason="the torch backend needs PyTorch")
    settings: dict[str, Any] = {"backend": backend, "device": "cpu"}
    target = write_tiny_gguf(tmp_path, "llama", "BF16")
    draft = write_tiny_hf(tmp_path, "qwen3", "BF16", layers=1)
    core = loaded(target, draft, **settings).core
    info = core.info()
    assert info.draft_model_type == "qwen3"
    assert info.draft_weight_bytes > 0 < info.draft_kv_bytes
    (line,) = [line for line in memory_report(info) if line.startswith("draft model")]
    assert line.startswith("draft model (qwen3): ") and "of K and V" in line
    core.submit(submit("r", list(range(40)), max_tokens=30))
    got = drain(core)["r"]
    assert core.stats().spec_draft_tokens > 0
    plain = load_engine(
        EngineConfig(model=str(target), num_gpu_blocks_override=16, **settings)
    ).core
    assert plain.info().draft_model_type == "" and plain.info().draft_kv_bytes == 0
    plain.submit(submit("r", list(range(40)), max_tokens=30))
    assert drain(plain)["r"].token_ids == got.token_ids


def test_the_vocabulary_is_compared_across_kinds_of_files_and_padding(tmp_path: Path) -> None:
    gguf = open_checkpoint(write_tiny_gguf(tmp_path, "llama", vocab=288))
    folder = open_checkpoint(write_tiny_hf(tmp_path, "qwen3", vocab=320))
    padded = open_checkpoint(write_tiny_gguf(tmp_path / "other", "llama", vocab=352))
    for each, other in [(gguf, folder), (folder, gguf), (gguf, padded), (folder, folder)]:
        check_same_tokens(each, other)


def test_another_vocabulary_is_refused_with_what_differs(tmp_path: Path) -> None:
    target = write_tiny_hf(tmp_path / "target", "llama")
    draft = write_tiny_hf(tmp_path / "draft", "llama")
    path = draft / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocab = tokenizer["model"]["vocab"]
    first, second = list(vocab)[65:67]
    vocab[first], vocab[second] = vocab[second], vocab[first]
    path.write_text(json.dumps(tokenizer))
    with pytest.raises(ConfigError, match="2 of 260 ids mean something else") as caught:
        loaded(target, draft)
    assert "the first is 65, b'B' in the draft and b'A' in the model" in str(caught.value)
    assert "use a draft model with the same tokenizer" in str(caught.value)
    tokenizer["added_tokens"].pop()
    path.write_text(json.dumps(tokenizer))
    with pytest.raises(ConfigError, match=r"has 259 tokens, and that of .* has 260"):
        loaded(target, draft)
    path.unlink()
    with pytest.raises(ConfigError, match="has no tokenizer"):
        loaded(target, draft)


def test_a_draft_with_a_wrong_shape_is_refused_by_name(tmp_path: Path) -> None:
    target = write_tiny_hf(tmp_path / "target", "llama")
    draft = write_tiny_hf(tmp_path / "draft", "llama")
    path = draft / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"intermediate_size": 2 * config["intermediate_size"]}))
    with pytest.raises(CheckpointError, match=r"the draft model .* cannot be used: .*mlp"):
        loaded(target, draft)


def test_a_draft_that_is_not_there_or_that_never_works_is_refused(tmp_path: Path) -> None:
    target = write_tiny_hf(tmp_path / "target", "llama")
    with pytest.raises(HeadraceError, match="no_such_model"):
        loaded(target, tmp_path / "no_such_model.gguf")
    draft = tiny_checkpoint("llama")
    norm = draft.tensors["model.norm.weight"]
    spoiled = np.full(norm.shape, np.nan, np.float32)
    write = write_tiny_hf(tmp_path / "draft", "llama")
    raw = (write / "model.safetensors").read_bytes()
    (write / "model.safetensors").write_bytes(raw.replace(bytes(norm.data), spoiled.tobytes()))
    with pytest.raises(ConfigError, match="the draft model does not work"):
        loaded(target, write)


@pytest.mark.parametrize(
    ("text", "method", "tokens"),
    [
        ('{"model": "m"}', "draft_model", None),
        ('{"method": "draft_model", "model": "m", "num_speculative_tokens": 5}', "draft_model", 5),
        ('{"method": "auto", "model": "m"}', "auto", None),
        ("{}", "auto", None),
    ],
)
def test_a_model_without_a_method_is_a_draft(text: str, method: str, tokens: int | None) -> None:
    config = read_speculative_config(text)
    assert (config.sources, config.num_speculative_tokens) == (method, tokens)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"method": "draft_model"}', "give model"),
        ('{"method": "ngram", "model": "m"}', "method ngram has none"),
        ('{"method": "none", "model": "m"}', "method none has none"),
    ],
)
def test_a_method_and_a_model_that_do_not_go_together_are_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_speculative_config(text)


def test_the_pool_holds_as_many_tokens_as_the_target_as_far_as_there_is_memory() -> None:
    config = EngineConfig(num_gpu_blocks_override=64, block_size=16, max_num_seqs=4)
    target = plan_kv_cache(MockModel(max_positions=1000), config, 1 << 20)
    draft = MockModel(max_positions=400, windows=(0, 0))

    def plan(reserved: int) -> int:
        return plan_draft_cache(
            draft, config, target, reserved_bytes=reserved, max_step_tokens=64
        ).num_blocks

    assert plan(0) == min(64, 4 * 25)
    block = plan_draft_cache(
        draft, config, target, reserved_bytes=0, max_step_tokens=64
    ).block_bytes
    left = target.available_bytes - target.num_blocks * target.block_bytes
    assert plan(left - 30 * block) == 30
    with pytest.raises(ConfigError, match="a request of 400 tokens takes 25 x"):
        plan(left - 24 * block)


def test_types_of_layers_with_a_window_are_nothing_to_a_draft_without_any() -> None:
    config = EngineConfig(
        num_gpu_blocks_override=64, block_size=16, max_num_seqs=4, kv_cache_dtype_sliding="int8"
    )
    target = plan_kv_cache(MockModel(max_positions=400, windows=(0, 32)), config, 1 << 20)
    draft = MockModel(max_positions=400)
    plan = plan_draft_cache(draft, config, target, reserved_bytes=0, max_step_tokens=64)
    assert plan.types == "f32"


def test_a_draft_is_held_in_the_dtype_of_the_settings_where_it_is_not_quantised(
    tmp_path: Path,
) -> None:
    target = write_tiny_gguf(tmp_path, "llama", "BF16")
    sizes = {}
    for codec in ("BF16", "Q8_0"):
        draft = write_tiny_gguf(tmp_path / codec, "llama", codec, layers=1)
        for dtype in ("auto", "float32"):
            info = loaded(target, draft, dtype=dtype).core.info()
            sizes[codec, dtype] = info.draft_weight_bytes
    assert sizes["BF16", "float32"] > 1.9 * sizes["BF16", "auto"]
    assert sizes["Q8_0", "float32"] == sizes["Q8_0", "auto"]
