"""headrace-moe, the model with experts of the repository: its greedy tokens are transformers' own.

Its weights are written out as F32, so that both compute the same model; what transformers continues
ten beginnings with lies in shipped_moe.json and is computed again where it is installed.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.models import load_model
from headrace.ops import make_ops
from headrace.weights.conversion.convert import write_gguf
from headrace.weights.open import open_checkpoint
from tests.models.shipped_moe import (
    BEGINNINGS,
    GREEDY,
    NEW_TOKENS,
    SHIPPED,
    greedy_of_headrace,
    likeliest_of_transformers,
    prompts,
    write_f32,
)

pytestmark = pytest.mark.skipif(
    not SHIPPED.exists(), reason="models/ is in the repository, in no sdist and no wheel"
)


def stored() -> list[dict[str, list[int]]]:
    entries: list[dict[str, list[int]]] = json.loads(GREEDY.read_text(encoding="utf-8"))
    return entries


def test_the_stored_prompts_are_these_beginnings() -> None:
    assert [entry["prompt"] for entry in stored()] == prompts()
    assert [len(entry["greedy"]) for entry in stored()] == [NEW_TOKENS] * len(BEGINNINGS)


@pytest.mark.matrix
@pytest.mark.parametrize("container", ["folder", "gguf"])
def test_all_greedy_tokens_are_those_of_transformers(container: str, tmp_path: Path) -> None:
    model = tmp_path / "moe.gguf"
    if container == "folder":
        model = write_f32(tmp_path / "moe")
    else:
        write_gguf(open_checkpoint(SHIPPED), model, "F32")
    entries = stored()
    greedy = greedy_of_headrace(model, [entry["prompt"] for entry in entries])
    assert greedy == [entry["greedy"] for entry in entries]


@pytest.mark.torch
def test_transformers_gives_what_is_stored(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="compares with transformers, which needs torch")
    pytest.importorskip("transformers", reason="compares with transformers")
    entries = stored()
    folder, greedy = write_f32(tmp_path / "moe"), [entry["greedy"] for entry in entries]
    prompt_ids = [entry["prompt"] for entry in entries]
    assert likeliest_of_transformers(folder, prompt_ids, greedy) == greedy


def test_a_decode_step_reads_the_experts_it_chooses() -> None:
    """Two of eight for one request; its file states Q8_0 and one dense layer."""
    checkpoint = open_checkpoint(SHIPPED)
    model = load_model(checkpoint, make_ops("cpu", threads=2), max_positions=64)
    experts = sum(t.nbytes for name, t in checkpoint.tensors.items() if ".experts." in name)
    assert model.step_weight_bytes == checkpoint.nbytes - experts
    cost = model.cost(model.cache_layout.spec(1, 1, "bf16", "bf16"))
    one, all_of_them = cost.of([(0, 1, True)]), cost.of([(0, 1000, True)])
    kv = 2 * model.config.num_layers * 2 * model.attention.num_kv_heads * 64 * 2
    assert one.bytes == model.step_weight_bytes + experts * 2 // 8 + kv
    assert all_of_them.bytes == model.step_weight_bytes + experts + 1000 * kv
