"""Figures that were worked out by hand before there was a planner, one test for each.

Those of KV, prefill, ridges, speculation and cost are with the code they test (test_kv_cache,
test_step, test_roofline, test_speculation, test_cost, test_break_even, test_cascade); here are the
others. Test vectors from the research's formulas F1 to F28 and its table of constants.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path

import gguf
import pytest

from headrace.catalog import Catalog
from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.plan.machine.device import device_of
from headrace.plan.machine.hardware_memory import constant, constant_span, place_of
from headrace.plan.memory.kv_cache import KvCache, kv_kind
from headrace.plan.memory.memory import Load, Storage, memory_plan
from headrace.plan.memory.weights_memory import weights_quantity
from headrace.plan.model.model_shape import (
    ModelShape,
    shape_of_catalog,
    shape_of_checkpoint,
    shape_of_config,
)

CATALOG = Catalog.load()
GIB = 2**30


def shape(model: str) -> ModelShape:
    return shape_of_catalog(CATALOG.models[model])


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        ("q8-0", 8.5, 8.5),
        ("q6-k", 6.5625, 6.5625),
        ("q5-k-m", 5.65, 5.75),
        ("q4-k-m", 4.8, 4.95),
        ("iq4-xs", 4.25, 4.25),
        ("q4-0", 4.5, 4.55),
        ("q3-k-m", 3.85, 3.95),
        ("q2-k-mix", 3.0, 3.4),
        ("mxfp4", 4.25, 4.25),
        ("nvfp4", 4.5, 4.5),
        ("awq", 4.15, 4.25),
        ("gptq", 4.15, 4.25),
        ("fp8", 8, 8.2),
        ("int8", 8, 8.2),
    ],
)
def test_bits_of_a_weight_count_its_scales(kind: str, low: float, high: float) -> None:
    bits = CATALOG.quantizations[kind].bits_per_weight
    assert bits is not None and low <= bits <= high


@pytest.mark.parametrize(
    ("kind", "gb"),
    [
        ("q8-0", 7.2), ("q6-k", 5.5), ("q5-k-m", 4.8), ("q4-k-m", 4.1), ("q3-k-m", 3.3),
        ("q2-k-mix", 2.9),
    ],
)  # fmt: skip
def test_sizes_of_a_7b_are_those_of_the_quick_reference(kind: str, gb: float) -> None:
    """6.74 B weights, decimal GB; the table's IQ4_XS of 3.8 is at 4.5 bits, as files have it."""
    found = weights_quantity(shape("llama-2-7b"), CATALOG.quantizations[kind])
    assert found.value / 1e9 == pytest.approx(gb, rel=0.04)


@pytest.mark.parametrize(
    ("billions", "kind", "file", "bits", "gib"),
    [
        (7.62, "q4-k-m", "generic-7b", 4.91, 4.36),
        (70.55, "q4-0", "generic-70b", 4.55, 37.35),
        (671.03, "iq1-s", "deepseek-r1", 1.67, 130.60),
    ],
)
def test_files_that_were_measured(
    billions: float, kind: str, file: str, bits: float, gib: float
) -> None:
    stated = CATALOG.quantizations[kind].file_bits_per_weight[file]
    assert stated == bits
    assert billions * 1e9 * stated / 8 / GIB == pytest.approx(gib, rel=0.003)


@pytest.mark.parametrize(
    ("hardware", "kind", "ridge"),
    [
        ("h100-sxm", "bf16", 295), ("h100-sxm", "fp8", 591), ("a100-sxm", "bf16", 153),
        ("b200-sxm", "bf16", 292), ("b200-sxm", "fp8", 584), ("rtx-4090", "bf16", 164),
    ],
)  # fmt: skip
def test_ridges_of_the_catalog(hardware: str, kind: str, ridge: float) -> None:
    """B200: 281 and 562 at 8 TB/s (test_roofline); the row has the 7.7 TB/s of aiconfigurator."""
    device, _ = device_of(CATALOG, hardware)
    found = device.peak(kind) / device.bandwidth_bytes_per_s
    assert found == pytest.approx(ridge, rel=0.012)


def test_f4_words_a_minute_at_30_ms() -> None:
    low, high = constant_span(CATALOG, "words-per-token")
    tokens = 60 / 0.030
    assert tokens == 2000
    assert (tokens * low, tokens * high) == (1500, 1600)


def test_f17_an_attention_matrix_that_is_never_stored() -> None:
    assert 4096**2 * 2 == 32 * 2**20
    assert 32 * GIB == 131_072**2 * 2


def test_f19_llama_65b_keeps_eight_times_what_llama_2_70b_does() -> None:
    kind = kv_kind("F16", CATALOG)
    many, few = (
        KvCache(shape(model), kind, kind).bytes_per_token
        for model in ("llama-1-65b", "llama-2-70b")
    )
    assert many == 8 * few


def test_f24_energy_of_a_site() -> None:
    assert constant_span(CATALOG, "pue") == (1.3, 1.5)


def test_f27_a_70b_at_8k() -> None:
    """2.5 GiB and not the 20 that heads of their own would take; 80 GiB for 32."""
    kind = kv_kind("F16", CATALOG)
    found = KvCache(shape("llama-2-70b"), kind, kind).request_bytes(8192)
    assert found == 2.5 * GIB
    assert 32 * found == 80 * GIB


@pytest.mark.parametrize(
    ("model", "experts", "used", "shared"),
    [
        ("qwen3-30b-a3b", 128, 8, 0),
        ("qwen3-235b-a22b", 128, 8, 0),
        ("deepseek-v3", 256, 8, 1),
        ("kimi-k2", 384, 8, 1),
        ("llama-4-maverick", 128, 1, 1),
        ("mixtral-8x22b", 8, 2, 0),
        ("gpt-oss-120b", 128, 4, 0),
    ],
)
def test_experts_of_verified_models(model: str, experts: int, used: int, shared: int) -> None:
    (layers,) = shape(model).moe
    assert (layers.experts, layers.experts_per_token, layers.shared_experts) == (
        experts, used, shared,
    )  # fmt: skip


def test_gpt_oss_has_5_billion_active_and_half_its_layers_windows() -> None:
    found = shape("gpt-oss-120b")
    assert found.parameters.total == pytest.approx(117e9, rel=0.01)
    # The stated 5.1 B leave the table out that is only looked up.
    assert found.parameters.active - found.parameters.embedding == pytest.approx(5.1e9, rel=0.03)
    kind = kv_kind("F16", CATALOG)
    cache = KvCache(found, kind, kind)
    assert cache.bytes_per_token == 73_728
    assert cache.request_bytes(131_072) / GIB == pytest.approx(4.5, rel=0.01)


def test_blocks_waste_at_most_what_one_lacks_a_token_of() -> None:
    kind = kv_kind("F16", CATALOG)
    cache = KvCache(shape("llama-3.1-8b"), kind, kind, block_tokens=16)
    wasted = [cache.tokens_kept(tokens) - tokens for tokens in range(1, 1025)]
    assert max(wasted) == 15
    assert sum(wasted) / len(wasted) == 7.5


def test_activations_capacity_and_tokens_in_flight_by_hand() -> None:
    """Formulas 4 and 5: Llama 3.1 70B in FP8 on four H100, steps of 2,048 tokens."""
    model, place = shape("llama-3.1-70b"), place_of(CATALOG, "h100-sxm", 4)
    kind = kv_kind("fp8", CATALOG)
    storage = Storage(CATALOG.quantizations["fp8"], kind, kind)
    plan = memory_plan(CATALOG, model, place, storage, Load(8192, 4, 2048))
    parts = {one.id: one.value for one in plan.components}
    coefficient, _ = constant(CATALOG, "activation-coefficient-4")
    assert coefficient == 5
    assert parts["activations"] == 2048 * 5 * 8192 * 2 + 4 * 128_256 * 4
    free = (
        place.memory_bytes * 0.9 - parts["weights-per-device"] - parts["activations"]
        - parts["runtime"]
    )  # fmt: skip
    assert plan.free_for_kv.value == pytest.approx(free)
    each = plan.cache.bytes_per_token
    assert each == 2 * 80 * 8 * 128 / 4
    assert plan.cache.most_tokens(free) == pytest.approx(free / each, abs=16)


def _gguf_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.gguf"))


def _tensor_count(path: Path) -> int:
    """As the header has it: of a large vocabulary the package would read for seconds."""
    with path.open("rb") as file:
        magic, _, tensors = struct.unpack("<4sIQ", file.read(16))
    assert magic == b"GGUF"
    return int(tensors)


@pytest.mark.matrix
def test_memory_of_every_gguf_file_is_that_of_its_bytes(shared_assets: Path) -> None:
    """Tensors to the byte, and with what is before them the file within 1 %.

    Oracle: the gguf package. Files of a vocabulary alone have no weights, and are refused.
    """
    with_weights = 0
    for path in _gguf_files(shared_assets):
        if _tensor_count(path) == 0:
            with pytest.raises((CheckpointError, UnsupportedModelError)):
                shape_of_checkpoint(path)
            continue
        reader = gguf.GGUFReader(path)
        with_weights += 1
        found = weights_quantity(shape_of_checkpoint(path), None)
        assert found.is_exact
        assert found.value == sum(int(tensor.n_bytes) for tensor in reader.tensors), path.name
        whole = found.value + reader.data_offset
        assert whole == pytest.approx(path.stat().st_size, rel=0.01), path.name
    assert with_weights >= 2


@pytest.mark.matrix
@pytest.mark.parametrize(("name", "kind"), [("llama-2-tiny-random", "f16"), ("stories260K", "f32")])
def test_a_config_and_a_kind_give_the_file(name: str, kind: str, shared_assets: Path) -> None:
    path = shared_assets / "models" / name / f"{name}.gguf"
    reader = gguf.GGUFReader(path)

    def said(key: str) -> int:
        return int(reader.fields[f"llama.{key}"].contents())

    tokens = len(reader.fields["tokenizer.ggml.tokens"].contents())
    tied = all(tensor.name != "output.weight" for tensor in reader.tensors)
    config = {
        "model_type": "llama",
        "num_hidden_layers": said("block_count"),
        "hidden_size": said("embedding_length"),
        "num_attention_heads": said("attention.head_count"),
        "num_key_value_heads": said("attention.head_count_kv"),
        "intermediate_size": said("feed_forward_length"),
        "vocab_size": tokens,
        "tie_word_embeddings": tied,
    }
    found = weights_quantity(shape_of_config(config), CATALOG.quantizations[kind])
    stored = sum(int(tensor.n_bytes) for tensor in reader.tensors)
    assert found.value == pytest.approx(stored, rel=0.01)


def test_every_formula_of_the_register_is_answered_for() -> None:
    """Each of F1 to F28 is in a test's name or here, with who has it."""
    elsewhere = {
        1: "queue and network are of the server: simulate, and TTFT of bench",
        2: "bench/definitions",
        5: "bench/goodput.py",
        7: "test_kv_cache: the table of verified models",
        10: "rejected: 2N, not 6N; test_step takes 2N",
        18: "a claim without conditions: technique of the catalog",
        26: "test_break_even: a function of the price",
        28: "a claim without conditions: contradiction C13",
    }
    named = set(elsewhere)
    for path in Path(__file__).parent.glob("test_*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if "def test" in line or '"""F' in line:
                named |= {int(one) for one in re.findall(r"[_\"\s]f(\d{1,2})(?=\D)", line.lower())}
    assert set(range(1, 29)) <= named, sorted(set(range(1, 29)) - named)
