"""What a draft adds to a plan of memory, held against what the engine gives it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from headrace.catalog import Catalog
from headrace.config import EngineConfig
from headrace.engine.drafts.heads.few_bits import few_bits_bytes
from headrace.engine.drafts.speculative_config import read_speculative_config
from headrace.engine.load import load_engine
from headrace.errors import CheckpointError, ConfigError
from headrace.plan.machine.hardware_memory import place_of
from headrace.plan.memory.draft import Draft, draft_named
from headrace.plan.memory.fit import Fit, fit
from headrace.plan.memory.kv_cache import kv_kind
from headrace.plan.memory.memory import Load, Storage
from headrace.plan.model.find_model import shape_named
from headrace.plan.model.model_shape import ModelShape
from headrace.weights.hugging_face.head_folder import open_head_folder
from headrace.weights.store.resolve import resolve_model
from tests.tiny import write_tiny_hf
from tests.tiny_heads import (
    dflash_config,
    eagle3_config,
    medusa_weights,
    mtp_checkpoint,
    write_dflash,
    write_eagle3,
    write_medusa,
    write_mtp_folder,
)

CATALOG = Catalog.load()
DRAFT = str(Path(__file__).parents[2] / "models" / "headrace-draft")


def named(model: str) -> ModelShape:
    return shape_named(CATALOG, model, {})


def draft_of(setting: str, target: ModelShape) -> Draft | None:
    return draft_named(CATALOG, read_speculative_config(setting), target, {})


def fitted(shape: ModelShape, draft: Draft | None, load: Load, hardware: str = "rtx-4090") -> Fit:
    kind = kv_kind("F16", CATALOG)
    weights = None if shape.weight_bytes is not None else CATALOG.quantizations["q4-k-m"]
    place = place_of(CATALOG, hardware, 1)
    return fit(CATALOG, shape, place, Storage(weights, kind, kind), load, draft=draft)


def part(found: Fit, id: str) -> float:
    return next(item.value for item in found.memory.components if item.id == id)


def test_a_draft_model_takes_what_the_engine_gives_it() -> None:
    setting = json.dumps({"model": DRAFT})
    config = EngineConfig(
        model="", speculative_config=setting, max_model_len=1024, max_num_seqs=4, block_size=16
    )
    drafter = load_engine(config).core.scheduler.drafter
    assert drafter is not None and drafter.speculation is not None
    chain = drafter.speculation.model
    assert chain is not None
    target = named(str(resolve_model("")))
    found = fitted(target, draft_of(setting, target), Load(1024, users=4))
    assert part(found, "draft-weights") == chain.maker.weight_bytes
    assert part(found, "draft-kv") == chain.plan.num_blocks * chain.plan.block_bytes


def test_a_request_holds_its_drafts_too() -> None:
    target = named("llama-3.1-8b")
    draft = draft_of('{"model": "llama-3.2-1b"}', target)
    assert draft is not None
    load = Load(8192, users=2)
    with_draft, without = fitted(target, draft, load), fitted(target, None, load)
    # 16 layers of 8 KV heads of 64 values, keys and values of 2 bytes each.
    assert part(with_draft, "draft-kv") == 2 * 8192 * 16 * 8 * 64 * 2 * 2
    added = part(with_draft, "draft-kv") + part(with_draft, "draft-weights")
    assert with_draft.memory.needed.value == pytest.approx(without.memory.needed.value + added)
    assert with_draft.most_users.value < without.most_users.value
    assert "draft-kv" in {figure.id for figure in with_draft.quantities}


def test_doing_without_the_draft_is_among_the_changes() -> None:
    target = named("llama-3.1-8b")
    draft = draft_of('{"model": "llama-3-8b"}', target)
    found = fitted(target, draft, Load(100_000, users=1))
    assert found.verdict != "fits"
    assert "--speculative-config auto" in {change.option for change in found.changes}


def test_a_head_is_counted_by_its_folder(tmp_path: Path) -> None:
    target = named(str(resolve_model("")))
    assert target.checkpoint is not None
    write_eagle3(tmp_path, eagle3_config(dict(target.checkpoint.config)))
    draft = draft_of(json.dumps({"model": str(tmp_path)}), target)
    assert draft is not None
    assert draft.weights.value == few_bits_bytes(open_head_folder(tmp_path))
    (layer,) = draft.shape.keeping
    found = fitted(target, draft, Load(512, users=3))
    assert part(found, "draft-kv") == 3 * 512 * layer.values_per_token * 2


def test_a_block_head_is_counted_with_all_of_its_layers(tmp_path: Path) -> None:
    target = named(str(resolve_model("")))
    assert target.checkpoint is not None
    write_dflash(tmp_path, dflash_config(dict(target.checkpoint.config), mask_token_id=7))
    draft = draft_of(json.dumps({"method": "dflash", "model": str(tmp_path)}), target)
    assert draft is not None and sum(layer.count for layer in draft.shape.keeping) == 2
    assert draft.weights.value == few_bits_bytes(open_head_folder(tmp_path))


def test_heads_without_attention_are_counted_with_what_the_engine_keeps(tmp_path: Path) -> None:
    target = named(str(resolve_model("")))
    weights = medusa_weights(target.hidden_size, target.vocabulary_tokens, 2, 1)
    write_medusa(tmp_path, {"medusa_num_heads": 2}, weights)
    setting = json.dumps({"method": "medusa", "model": str(tmp_path)})
    draft = draft_of(setting, target)
    assert draft is not None
    config = EngineConfig(
        model="", speculative_config=setting, max_model_len=1024, max_num_seqs=4, block_size=16
    )
    info = load_engine(config).core.info()
    assert draft.weights.value == info.draft_weight_bytes
    found = fitted(target, draft, Load(1024, users=4))
    assert part(found, "draft-kv") == info.draft_kv_bytes


def test_what_costs_nothing_is_no_draft() -> None:
    target = named("llama-3.1-8b")
    for setting in ("auto", "none", "ngram", '{"method": "suffix"}'):
        assert draft_of(setting, target) is None
    with pytest.raises(ConfigError, match="files"):
        draft_of("mtp", target)


def test_layers_from_a_place_of_their_own_are_counted_as_the_engine_holds_them(
    tmp_path: Path,
) -> None:
    model = write_tiny_hf(tmp_path / "model", "qwen3")
    offsets = np.arange(144, dtype=np.int64)
    path = write_mtp_folder(tmp_path / "own", mtp_checkpoint("qwen3"), offsets=offsets)
    setting = json.dumps({"method": "mtp", "model": str(path)})
    target = named(str(model))
    draft = draft_of(setting, target)
    assert draft is not None and sum(layer.count for layer in draft.shape.keeping) == 1
    config = EngineConfig(
        model=str(model), speculative_config=setting, max_model_len=64, max_num_seqs=2,
        block_size=16, backend="reference",
    )  # fmt: skip
    info = load_engine(config).core.info()
    assert draft.weights.value == info.draft_weight_bytes > 0
    with pytest.raises(ConfigError, match="files"):
        draft_of(setting, named("qwen3-0.6b"))


def test_a_draft_that_cannot_be_read_is_refused_with_the_flag(tmp_path: Path) -> None:
    target = named(str(write_tiny_hf(tmp_path / "model", "qwen3")))
    head = tmp_path / "head"
    head.mkdir()
    for config, method, words in (
        (
            None,
            "eagle3",
            "has no config.json; a folder with config.json and safetensors is required",
        ),
        ("{", None, "config.json: not valid JSON"),
        ('{"architectures": ["LlamaForCausalLMEagle3"]}', None, "no safetensors file"),
    ):
        if config is not None:
            (head / "config.json").write_text(config)
        setting = {"model": str(head)} | ({} if method is None else {"method": method})
        with pytest.raises(CheckpointError) as caught:
            draft_of(json.dumps(setting), target)
        assert str(caught.value).startswith(
            f"--speculative-config: model '{head}' cannot be used: "
        )
        assert words in str(caught.value)
