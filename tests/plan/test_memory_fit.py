"""Memory by component, what fits, and the changes that make it fit: figures worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.catalog import Catalog
from headrace.errors import CatalogError, CheckpointError, ConfigError
from headrace.plan.machine.hardware_memory import DeviceMemory, place_of
from headrace.plan.memory.fit import Fit, fit
from headrace.plan.memory.kv_cache import kv_kind
from headrace.plan.memory.memory import Load, MemoryPlan, Storage, memory_plan
from headrace.plan.memory.weights_memory import weights_quantity
from headrace.plan.model.find_model import shape_named
from headrace.plan.model.model_shape import shape_of_catalog
from headrace.plan.quantity import FORMULAS, Input, Quantity, total

CATALOG = Catalog.load()
GIB = 2**30


def storage(weights: str | None, kv: str = "F16") -> Storage:
    kind = kv_kind(kv, CATALOG)
    return Storage(None if weights is None else CATALOG.quantizations[weights], kind, kind)


def fitted(
    model: str, hardware: str, weights: str, load: Load, kv: str = "F16", count: int = 1
) -> Fit:
    shape = shape_of_catalog(CATALOG.models[model])
    return fit(CATALOG, shape, place_of(CATALOG, hardware, count), storage(weights, kv), load)


def component(plan: MemoryPlan, id: str) -> Quantity:
    return next(one for one in plan.components if one.id == id)


def test_a_70b_at_four_bits_on_an_h100() -> None:
    found = fitted("llama-3.1-70b", "h100-sxm", "q4-k-m", Load(8192, users=4))
    plan = found.memory
    assert component(plan, "kv").value == 4 * 2.5 * GIB
    assert component(plan, "kv").is_exact
    activations = 2048 * 10 * 8192 * 2 + 4 * 128_256 * 4
    assert component(plan, "activations").value == activations
    assert component(plan, "runtime").band == (0.5e9, 1e9)
    assert plan.usable.value == pytest.approx(0.9 * 80 * GIB)
    weights = component(plan, "weights").value
    assert weights == pytest.approx(70.554e9 * 4.85 / 8, rel=0.001)
    assert plan.needed.value == weights + 10 * GIB + activations + 0.75e9
    assert found.verdict == "fits" and not found.changes
    assert plan.free_for_kv.value == pytest.approx(plan.usable.value - plan.needed.value + 10 * GIB)


def test_contradiction_12_is_answered_by_the_formula() -> None:
    """153 requests of 4,096 tokens on four H100 with FP8 weights, if all memory is used."""
    shape = shape_of_catalog(CATALOG.models["llama-3.1-70b"])
    place = DeviceMemory("4x H100", "gpu", 4, 80 * 10**9, 1.0, ())
    free = 4 * 80e9 - shape.parameters.total
    assert 130 < free / (1.25 * GIB) < 200
    plan = memory_plan(CATALOG, shape, place, storage("fp8"), Load(4096))
    per_device = component(plan, "weights-per-device")
    ends = 2 * 128_256 * 8192
    assert per_device.value * 4 == pytest.approx(shape.parameters.total + ends, rel=1e-6)
    assert component(plan, "kv").value == 1.25 * GIB / 4
    assert 130 < fit(CATALOG, shape, place, storage("fp8"), Load(4096)).most_users.value < 200


@pytest.mark.parametrize(
    ("model", "kind", "gib"),
    [
        ("llama-3.1-8b", "q8-0", 7.95),
        ("llama-3.1-8b", "f16", 14.96),
        ("llama-3.1-8b", "q6-k", 6.14),
    ],
)
def test_weights_are_as_large_as_the_files_were(model: str, kind: str, gib: float) -> None:
    shape = shape_of_catalog(CATALOG.models[model])
    found = weights_quantity(shape, CATALOG.quantizations[kind], CATALOG)
    assert found.value / GIB == pytest.approx(gib, rel=0.01)
    low, high = found.band
    assert low <= found.value <= high
    errors = [one for one in found.inputs if one.name.startswith("weights-error-")]
    assert [one.source for one in errors] == ([] if kind == "f16" else ["planner-choices"])
    assert high == pytest.approx(found.value * (1 + sum(float(one.value) for one in errors)))


def test_a_32b_at_4_9_bits_is_19_6_gb() -> None:
    """F6, with the parameters as they are: 32.76 B."""
    shape = shape_of_catalog(CATALOG.models["qwen3-32b"])
    found = weights_quantity(shape, CATALOG.quantizations["q4-k-m"])
    assert found.formula == "F6"
    assert found.value == pytest.approx(19.6e9, rel=0.04)


def test_what_is_stored_is_taken_exactly(shared_assets: Path) -> None:
    path = shared_assets / "models" / "stories260K" / "stories260K.gguf"
    shape = shape_named(CATALOG, str(path), {"HOME": "/nonexistent"})
    found = weights_quantity(shape, None)
    assert found.is_exact and found.formula == "M1"
    assert found.value == 292_800 * 4
    assert found.value == pytest.approx(path.stat().st_size, rel=0.02)  # the rest is vocabulary


def test_a_machine_of_several_is_counted_by_device() -> None:
    place = place_of(CATALOG, "8x-h100-sxm")
    assert place.devices == 8 and place.memory_bytes == 80 * GIB
    assert place_of(CATALOG, "2x-rtx-3090", 2).devices == 4
    mac = place_of(CATALOG, "m4-max-36gb")
    assert mac.memory_bytes == 24 * GIB and mac.usable_share == 1


def test_this_machine_is_measured() -> None:
    place = place_of(CATALOG, "this")
    assert place.kind == "cpu" and place.memory_bytes > 0
    assert place.inputs[0].basis == "measured"
    with pytest.raises(ConfigError, match="count is 2"):
        place_of(CATALOG, "this", 2)


def test_what_does_not_fit_says_by_how_much_and_what_would() -> None:
    found = fitted("llama-3.1-70b", "rtx-4090", "q4-k-m", Load(8192))
    plan = found.memory
    assert found.verdict == "fits with changes" and not plan.fits
    assert plan.missing_bytes == plan.needed.value - plan.usable.value > 20e9
    assert found.most_users.value == found.most_context.value == 0
    best = found.changes[0]
    assert best.enough and best.option == "--count 4"
    assert [one.enough for one in found.changes] == sorted(
        (one.enough for one in found.changes), reverse=True
    )
    kv = next(one for one in found.changes if one.option == "--kv-type Q8_0")
    assert kv.saving_bytes == pytest.approx(2.5 * GIB * 7.5 / 16)


def test_every_change_that_is_enough_fits_when_it_is_made() -> None:
    load = Load(131_072, users=4)
    found = fitted("gpt-oss-120b", "h100-sxm", "mxfp4", load)
    options = {one.option for one in found.changes if one.enough}
    assert "--kv-type fp8" in options and "--users 2" in options
    assert fitted("gpt-oss-120b", "h100-sxm", "mxfp4", load, kv="fp8").memory.fits
    assert fitted("gpt-oss-120b", "h100-sxm", "mxfp4", Load(131_072, users=2)).memory.fits
    shorter = next(one for one in found.changes if one.option.startswith("--context"))
    tokens = int(shorter.option.split()[1])
    assert fitted("gpt-oss-120b", "h100-sxm", "mxfp4", Load(tokens, users=4)).memory.fits
    assert not fitted("gpt-oss-120b", "h100-sxm", "mxfp4", Load(tokens + 16, users=4)).memory.fits


def test_changes_are_of_kinds_that_a_program_reads_there() -> None:
    def kinds(model: str, hardware: str, weights: str) -> set[str]:
        found = fitted(model, hardware, weights, Load(32_768, users=16))
        words = [one.option.split() for one in found.changes]
        return {word for one in words for word in one[1::2] if one[0][2:] != "count"}

    # A server's weights are not turned into GGUF, nor an old card's into what it does not compute.
    of_deepseek = kinds("deepseek-v3", "h100-sxm", "fp8")
    assert {"fp8", "awq"} <= of_deepseek and not of_deepseek & {"Q8_0", "q4-k-m", "mxfp4"}
    ampere = kinds("llama-3.1-70b", "a100-sxm", "bf16")
    assert {"int8", "awq"} & ampere and not ampere & {"fp8", "nvfp4", "q4-k-m"}
    assert "nvfp4" in kinds("llama-3.1-405b", "b200-sxm", "bf16")
    # Its maker released it in this kind alone; an A100 has no 8-bit floats for the cache.
    assert all(word.isdigit() for word in kinds("gpt-oss-120b", "a100-sxm", "mxfp4"))
    for hardware, weights in (("rtx-4090", "bf16"), ("h100-sxm", "q8-0"), ("m4-max", "bf16")):
        of_llama_cpp = kinds("llama-3.1-70b", hardware, weights)
        assert "Q8_0" in of_llama_cpp and not of_llama_cpp & {"fp8", "awq"}


def test_nothing_makes_a_trillion_fit_into_a_phone() -> None:
    found = fitted("kimi-k2", "m4-max-36gb", "q4-k-m", Load(8192))
    assert found.verdict in ("does not fit", "fits with changes")
    assert not any(one.enough for one in found.changes if "--count" not in one.option)


@settings(max_examples=40, deadline=None)
@given(
    context=st.integers(1, 200_000),
    users=st.integers(1, 64),
    weights=st.sampled_from(["bf16", "q8-0", "q4-k-m", "fp8"]),
    kv=st.sampled_from(["F16", "Q8_0", "fp8"]),
    count=st.sampled_from([1, 2, 4, 8]),
)
def test_the_most_is_the_most(context: int, users: int, weights: str, kv: str, count: int) -> None:
    load = Load(context, users=users)
    found = fitted("llama-3.1-8b", "rtx-4090", weights, load, kv, count)
    plan, cache = found.memory, found.memory.cache
    free = plan.free_for_kv.value
    most = int(found.most_context.value)
    if most:
        assert users * cache.request_bytes(most) <= free
    if found.context_limit == "memory":
        assert users * cache.request_bytes(most + 1) > free
    served = int(found.most_users.value)
    assert served * cache.request_bytes(context) <= max(free, 0)
    assert (served + 1) * cache.request_bytes(context) > free
    assert plan.fits == (served >= users)
    low, high = plan.needed.band
    assert low <= plan.needed.value <= high


def test_every_figure_says_where_it_comes_from() -> None:
    found = fitted("deepseek-v3", "8x-h100-sxm", "fp8", Load(4096, users=8))
    ids = [one.id for one in found.quantities]
    assert len(ids) == len(set(ids))
    for one in found.quantities:
        assert one.formula in FORMULAS and one.inputs, one.id
        assert all(part.source for part in one.inputs), one.id
    encoded = json.loads(json.dumps(found.as_dict()))
    assert encoded["devices"] == 8
    assert {one["id"] for one in encoded["quantities"]} == set(ids)


def test_sums_keep_bands_and_refuse_mixed_units() -> None:
    parts = [
        Quantity("a", "a", 2, "byte", "M7", low=1, high=3),
        Quantity("b", "b", 5, "byte", "M7"),
    ]
    found = total("c", "c", parts, "M7")
    assert (found.value, found.band) == (7, (6, 8))
    assert [one.basis for one in found.inputs] == ["given", "exact"]
    with pytest.raises(ValueError, match="byte, tokens"):
        total("c", "c", [parts[0], Quantity("d", "d", 1, "tokens", "M5")], "M7")
    with pytest.raises(ValueError, match="outside"):
        Quantity("a", "a", 4, "byte", "M7", low=1, high=3)
    assert Input("x", 1, "", "s", "given").disputed_by == ()


@pytest.mark.parametrize(
    "load", [{"context_tokens": 0}, {"context_tokens": 1, "users": 0},
             {"context_tokens": 1, "step_tokens": -1}],
)  # fmt: skip
def test_a_load_of_nothing_is_refused(load: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="whole number >= 1"):
        Load(**load)


def test_unknown_names_come_with_the_nearest(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    with pytest.raises(ConfigError, match=r"llama-3.1-7b.*did you mean.*llama-3.1-8b"):
        shape_named(CATALOG, "llama-3.1-7b", environ)
    with pytest.raises(CatalogError, match="h100"):
        place_of(CATALOG, "h101")
    with pytest.raises(ConfigError, match="count is 0"):
        place_of(CATALOG, "h100-sxm", 0)
    with pytest.raises(ConfigError, match="--quantization"):
        weights_quantity(shape_of_catalog(CATALOG.models["qwen3-8b"]), None)
    with pytest.raises(ConfigError, match="is a method"):
        weights_quantity(
            shape_of_catalog(CATALOG.models["qwen3-8b"]), CATALOG.quantizations["smoothquant"]
        )


def test_a_config_file_is_a_model(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    config = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
              "intermediate_size": 128, "vocab_size": 100}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    shape = shape_named(CATALOG, str(folder / "config.json"), {})
    assert shape.name == "mine" and shape.source == "config.json"
    (folder / "config.json").write_text("[", encoding="utf-8")
    with pytest.raises(CheckpointError, match="not valid JSON"):
        shape_named(CATALOG, str(folder / "config.json"), {})
