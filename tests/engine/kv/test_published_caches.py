"""The KV cache of published models: bytes of a token, and blocks that 32,768 tokens hold.

What is expected is computed from the numbers that the makers state, by the formulas in the comments
beside them, and not from what a config is read as.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace.engine.kv.kv_cache import KVCache
from headrace.engine.params import SamplingParams
from headrace.engine.request import Request
from headrace.engine.scheduling.scheduler import Scheduler
from headrace.models import FAMILIES, read_config
from headrace.models.layer_cache import CacheLayout, cache_layout
from tests.engine.plans import given
from tools.counts.tiny_model import checkpoint_of

LENGTH, BLOCK, STEP = 32_768, 32, 512

GEMMA_3_4B = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
        "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    },
}  # fmt: skip


class Published(NamedTuple):
    """A model as its maker describes it."""

    config: str | dict[str, Any]
    """config.json, or the name of its file among the shared assets."""
    token_bytes: int
    """Of all layers, at 16 bits."""
    full_layers: int
    window_layers: int = 0
    window: int = 0
    family: str = "gpt_oss"
    chunked: bool = False
    """Whether `window` is the length of chunks."""


MODELS = {
    # layers x (K and V) x heads of K and V x head_dim x 2 bytes
    "gpt-oss-20b": Published("openai--gpt-oss-20b", 24 * 2 * 8 * 64 * 2, 12, 12, 128),
    "gpt-oss-120b": Published("openai--gpt-oss-120b", 73_728, 18, 18, 128),
    "gemma-3-4b": Published(GEMMA_3_4B, 34 * 2 * 4 * 256 * 2, 5, 29, 1024, "gemma3_text"),
    # Three of four layers see a chunk of 8,192 positions.
    "Llama-4-Maverick": Published(
        "meta-llama--Llama-4-Maverick-17B-128E-Instruct", 196_608, 12, 36, 8192, "llama4_text", True
    ),
    # layers x (512 of the latent and 64 of rotary keys) x 2 bytes
    "DeepSeek-V3": Published("deepseek-ai--DeepSeek-V3", 70_272, 61, family="deepseek_v3"),
}

IMPLEMENTED = [name for name, published in MODELS.items() if published.family in FAMILIES]


def config_of(name: str, shared_assets: Path) -> dict[str, Any]:
    stated = MODELS[name].config
    if isinstance(stated, str):
        folder = shared_assets / "model-configs" / "hf-config"
        stated = json.loads((folder / f"{stated}_config.json").read_text(encoding="utf-8"))
    return {key: value for key, value in dict(stated).items() if key != "quantization_config"}


def layout_of(name: str, shared_assets: Path) -> CacheLayout:
    config = read_config(checkpoint_of(config_of(name, shared_assets), {}))
    return cache_layout(config.layer_caches)


@pytest.mark.parametrize("name", IMPLEMENTED)
def test_a_token_takes_the_bytes_of_the_formula(name: str, shared_assets: Path) -> None:
    layout, published = layout_of(name, shared_assets), MODELS[name]
    spec = layout.spec(BLOCK, 1, "bf16", "bf16")
    assert spec.block_bytes * layout.num_tables == published.token_bytes * BLOCK
    layers = {group.window: len(group.layers) for group in layout.groups}
    expected = {0: published.full_layers}
    if published.window:
        expected[published.window] = published.window_layers
    assert layers == expected


def most_held(layout: CacheLayout, num_blocks: int) -> int:
    """The most blocks that one request holds while its prompt of LENGTH tokens is computed."""
    kv = KVCache(num_blocks, BLOCK, groups=layout.groups, max_step_tokens=STEP)
    scheduler = Scheduler(kv, max_num_batched_tokens=STEP, max_num_seqs=1)
    request = Request("0", list(range(LENGTH)), LENGTH, SamplingParams(), LENGTH + 8, arrival=0)
    scheduler.submit(request)
    most = 0
    for step in range(LENGTH // STEP):
        plan = scheduler.schedule(float(step))
        most = max(most, kv.num_held(request))
        scheduler.complete(
            plan, given([5 if row.samples else None for row in plan.rows]), float(step)
        )
        kv.check(scheduler.running)
    assert request.num_computed == LENGTH
    return most


@pytest.mark.parametrize("name", IMPLEMENTED)
def test_32k_tokens_hold_of_each_layer_what_it_reads(name: str, shared_assets: Path) -> None:
    layout, published = layout_of(name, shared_assets), MODELS[name]
    most = most_held(layout, 2 * layout.num_tables * LENGTH // BLOCK)
    per_layer = published.token_bytes // (published.full_layers + published.window_layers)
    held = most * layout.spec(BLOCK, 1, "bf16", "bf16").block_bytes
    full = published.full_layers * LENGTH * per_layer
    # What a step reads and computes, and at most two blocks that it need not begin or end with. The
    # steps of this prompt do not cross from one chunk into the next.
    step = 0 if published.chunked else STEP
    read = published.window_layers * (published.window + step) * per_layer
    spare = published.window_layers * 2 * BLOCK * per_layer
    assert full + read - spare <= held <= full + read + spare
    assert held <= published.token_bytes * LENGTH
