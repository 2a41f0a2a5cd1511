"""What is told to fit before loading is what loading then finds."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.main import cli
from headrace.config.settings import EngineConfig
from headrace.engine.memory import stored_shape
from headrace.engine.memory.fit import fit
from headrace.engine.memory.kv_memory import REST_BYTES, plan_kv_cache
from headrace.engine.memory.weight_memory import copied_bytes
from headrace.models import load_model
from headrace.models.layer_cache import CacheLayout, LayerCache, cache_layout
from headrace.ops import make_ops
from headrace.weights.open import open_checkpoint
from tests.tiny import write_tiny_gguf, write_tiny_hf

PLENTY = 1 << 40


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3_text", "gpt2"])
@pytest.mark.parametrize("codec", ["F32", "BF16"])
def test_the_arithmetic_is_that_of_loading(family: str, codec: str, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_tiny_hf(tmp_path, family=family, codec=codec))
    model = load_model(checkpoint, make_ops("reference"))
    for spare in (0, 10_000, 100_000, 1_000_000, PLENTY):
        available = copied_bytes(checkpoint) + REST_BYTES + spare
        found = fit(checkpoint, available)
        assert found is not None
        one_block = model.cache_layout.spec(32, 1, found.kv_cache_dtype, found.kv_cache_dtype)  # type: ignore[arg-type]
        assert found.token_bytes == one_block.block_bytes // 32
        assert found.max_model_len == model.max_positions
        if found.problem:
            assert spare // 4 < one_block.block_bytes
            continue
        plan = plan_kv_cache(model, EngineConfig(), spare)
        assert (plan.kinds.full.k, plan.max_model_len) == (
            found.kv_cache_dtype,
            found.default_tokens,
        )
        largest = EngineConfig(
            kv_cache_memory_bytes=found.kv_cache_memory_bytes, max_model_len=found.most_tokens
        )
        assert plan_kv_cache(model, largest, spare).max_model_len == found.most_tokens
    assert found is not None
    assert found.most_tokens == found.default_tokens == model.max_positions


def test_weights_that_do_not_fit_are_said(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_tiny_gguf(tmp_path))
    found = fit(checkpoint, REST_BYTES)
    assert found is not None
    assert "the weights take" in found.problem
    assert (found.default_tokens, found.most_tokens, found.kv_cache_memory_bytes) == (0, 0, 0)


def test_layers_are_packed_into_blocks_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of thousands of layers that takes a tenth of a second, and lengths are tried by dozens."""
    laid_out: list[int] = []

    def counted(layers: Sequence[LayerCache]) -> CacheLayout:
        laid_out.append(len(layers))
        return cache_layout(layers)

    monkeypatch.setattr(stored_shape, "cache_layout", counted)
    checkpoint = open_checkpoint(write_tiny_gguf(tmp_path))
    assert fit(checkpoint, PLENTY)
    assert laid_out == [2]


def test_show_says_it(tmp_path: Path) -> None:
    path = str(write_tiny_gguf(tmp_path))
    result = CliRunner().invoke(cli, ["show", path, "--json"], catch_exceptions=False)
    memory = json.loads(result.stdout)["memory"]
    assert memory["default_tokens"] == memory["most_tokens"] == 512
    text = CliRunner().invoke(cli, ["show", path], catch_exceptions=False).stdout
    assert f"{memory['token_bytes']:,} bytes a token in f32" in text
    assert "512 of 512 tokens of context" in text


def test_show_says_what_the_model_recommends_for_sampling(tmp_path: Path) -> None:
    def shown(*arguments: str) -> str:
        return CliRunner().invoke(cli, ["show", *arguments], catch_exceptions=False).stdout

    assert json.loads(shown("--json"))["sampling_defaults"] == {"temperature": 0.6, "top_p": 0.9}
    assert re.search(r"^sampling defaults +temperature 0\.6, top_p 0\.9$", shown(), re.M)
    none_named = shown(str(write_tiny_gguf(tmp_path)))
    assert re.search(r"^sampling defaults +none named$", none_named, re.M)
