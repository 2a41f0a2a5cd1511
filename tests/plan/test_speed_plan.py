"""The whole answer of `plan speed`: what is put together, what fits, what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.catalog import Catalog
from headrace.errors import CatalogError, ConfigError
from headrace.plan.memory.kv_cache import kv_kind
from headrace.plan.memory.memory import Storage
from headrace.plan.model.model_shape import shape_of_catalog
from headrace.plan.speed.replica import Replica, ReplicaChoice, replica_of
from headrace.plan.speed.speed import Load, SpeedModel
from headrace.plan.speed.speed_plan import Draft, speed_plan
from headrace.telemetry.machine import Machine, PeakRate, ReadBandwidth

LOAD = Load(prompt_tokens=1000, output_tokens=201, batch=4)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.load()


def replica(
    catalog: Catalog,
    choice: ReplicaChoice,
    kind: str = "fp8",
    model: str = "llama-3.1-70b",
    machine: Machine | None = None,
    kv_type: str = "F16",
) -> Replica:
    kv = kv_kind(kv_type, catalog)
    storage = Storage(catalog.quantizations[kind], kv, kv)
    return replica_of(catalog, shape_of_catalog(catalog.models[model]), storage, choice, machine)


def test_figures_are_those_of_the_speed_model(catalog: Catalog) -> None:
    one = replica(catalog, ReplicaChoice(hardware="8x-h100-sxm"))
    plan = speed_plan(one, LOAD, batches=(1, 8), contexts=(1000, 4000))
    assert one.model.setup.compute_type == "fp8" and one.model.setup.parallelism.tensor == 8
    assert plan.speed == one.model.speed(LOAD)
    assert plan.points == one.model.sweep((1, 8), (1000, 4000))
    assert plan.knee_batch == one.model.knee_batch(1100)
    assert [figure.id for figure in plan.figures] == [
        "weights", "speed.ttft", "speed.tpot", "speed.e2e", "speed.throughput",
    ]  # fmt: skip
    assert one.model.setup.storage.bytes_per_weight == pytest.approx(
        one.weights.value / one.shape.parameters.total
    )


def test_fewer_devices_make_more_replicas(catalog: Catalog) -> None:
    one = replica(catalog, ReplicaChoice(hardware="8x-h100-sxm", tensor=2, pipeline=2))
    assert one.replicas == 2 and one.place.devices == one.model.setup.parallelism.devices == 4


def test_only_batches_that_fit_are_swept(catalog: Catalog) -> None:
    one = replica(catalog, ReplicaChoice(hardware="h100"), "q4-k-m")
    most = one.most_batch(1100)
    assert one.memory(1100, most).fits and not one.memory(1100, most + 1).fits
    plan = speed_plan(one, LOAD)
    assert max(point.batch for point in plan.points) <= most
    over = speed_plan(one, LOAD, batches=(most + 1,))
    assert not over.as_dict()["points"][0]["fits"]


def test_what_does_not_fit_is_refused_with_the_amount(catalog: Catalog) -> None:
    one = replica(catalog, ReplicaChoice(hardware="h100"), "q4-k-m")
    most = one.most_batch(1201)
    with pytest.raises(ConfigError, match=f"batch is 10,000; .* at most {most:,} requests"):
        speed_plan(one, replace(LOAD, batch=10_000))
    small = replica(catalog, ReplicaChoice(hardware="rtx-4090"), "q8-0")
    with pytest.raises(ConfigError, match=r"does not fit .* GB too much; use fewer bits"):
        speed_plan(small, LOAD)


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        (ReplicaChoice(hardware="h100", count=4, tensor=8), "8; there are 4 of h100, 4 too few"),
        (ReplicaChoice(hardware="h100", tensor=2), "there is 1 of h100, 1 too few"),
        (ReplicaChoice(hardware="8x-h100-sxm", expert=3), "expert is 3; it must divide tensor"),
        (ReplicaChoice(hardware="h100", pipeline=0), "pipeline_parallel is 0"),
        (ReplicaChoice(hardware="h100", compute_type="fp3"), "compute_type is 'fp3'"),
        (ReplicaChoice(hardware="h100", step_tokens=0), "step_tokens is 0"),
        (ReplicaChoice(hardware="h101"), "did you mean"),
        (ReplicaChoice(hardware="this"), "headrace bench machine"),
    ],
)
def test_impossible_choices_are_told(catalog: Catalog, choice: ReplicaChoice, told: str) -> None:
    with pytest.raises((ConfigError, CatalogError), match=told):
        replica(catalog, choice)


def test_this_machine_is_as_it_was_measured(catalog: Catalog) -> None:
    machine = Machine(
        "cpu", 2, 1 << 33, "2026-01-02T03:04:05Z",
        [ReadBandwidth("avx2", 2, 10**9, 2e10), ReadBandwidth("avx2", 2, 10**6, 9e10)],
        [PeakRate("avx2", 2, "f32", 1e11), PeakRate("avx2", 2, "int8", 4e11)],
    )  # fmt: skip
    choice = ReplicaChoice(hardware="this")
    one = replica(catalog, choice, "q8-0", "qwen3-0.6b", machine).model.setup
    assert one.device.bandwidth_bytes_per_s == 2e10  # what a cache gave is not memory's
    reached = one.efficiencies
    assert one.compute_type == "int8" and reached.bandwidth.source == "mbu-decode-measured"
    assert reached.basis == "from the measured limits of this machine"
    assert (reached.bandwidth.low, reached.bandwidth.high) == (0.73, 0.92)
    assert (reached.compute.low, reached.compute.high) == (0.54, 0.81)
    said = " ".join(replica(catalog, choice, "q8-0", "qwen3-0.6b", machine).model.assumptions)
    assert "82% (73% to 92%) of what was measured here" in said and "data sheet" not in said
    assert {given.basis for given in one.device.inputs} == {"measured"}
    assert replica(catalog, choice, "f16", "qwen3-0.6b", machine).model.setup.compute_type == "fp32"


def test_attention_of_this_machine_is_not_multiplied_by_tiles(catalog: Catalog) -> None:
    def model_of(peaks: dict[str, float]) -> SpeedModel:
        machine = Machine(
            "cpu", 2, 1 << 33, "2026-01-02T03:04:05Z", [ReadBandwidth("amx", 2, 10**9, 2e10)],
            [PeakRate("amx", 2, kind, rate) for kind, rate in peaks.items()],
        )  # fmt: skip
        return replica(catalog, ReplicaChoice(hardware="this"), "bf16", "qwen3-0.6b", machine).model

    rates = {"f32": 2e11, "bf16": 8e12, "int8": 16e12}
    tiles, pairs = model_of(rates), model_of({**rates, "bf16_pairs": 1e12})
    device = pairs.setup.device
    assert (device.peak("bf16"), device.attention_operations_per_s) == (8e12, 1e12)
    assert ("peak of attention", 1e12) in [(one.name, one.value) for one in device.inputs]
    # 28 layers of 16 heads of 128, K and V, a multiply and an add: of each pair of tokens.
    attention = 28 * 16 * 2 * 128 * 2 * (4096 * 4097 / 2)
    slower = pairs.prefill(4096).parts.compute_s - tiles.prefill(4096).parts.compute_s
    share = pairs.setup.efficiencies.compute.value
    assert slower == pytest.approx(attention * (1 / 1e12 - 1 / 8e12) / share)


def test_attention_over_f32_has_the_rate_of_f32(catalog: Catalog) -> None:
    machine = Machine(
        "cpu", 2, 1 << 33, "2026-01-02T03:04:05Z", [ReadBandwidth("new", 2, 10**9, 2e10)],
        [PeakRate("new", 2, "f32", 2e11), PeakRate("new", 2, "bf16", 4e11)],
    )  # fmt: skip
    this = ReplicaChoice(hardware="this")
    found = {
        kv_type: replica(catalog, this, "bf16", "qwen3-0.6b", machine, kv_type).model.setup.device
        for kv_type in ("F32", "BF16", "q8_0")
    }
    rates = {name: device.attention_operations_per_s for name, device in found.items()}
    assert rates == {"F32": 2e11, "BF16": 4e11, "q8_0": 4e11}
    assert ("peak of attention", 2e11) in [(one.name, one.value) for one in found["F32"].inputs]


def test_a_card_of_this_machine_is_as_it_was_measured(catalog: Catalog) -> None:
    """And no plan of the CPU takes the card's limits for its own."""
    card = "cuda NVIDIA H200"
    machine = Machine(
        "cpu", 2, 1 << 33, "2026-01-02T03:04:05Z",
        [ReadBandwidth("avx2", 2, 10**9, 2e10), ReadBandwidth(card, 1, 10**9, 4.1e12)],
        [PeakRate("avx2", 2, "int8", 4e11), PeakRate(card, 1, "bf16", 7e14)],
    )  # fmt: skip
    choice = ReplicaChoice(hardware="h200")
    stated = replica(catalog, choice, "bf16", "qwen3-0.6b").model.setup
    one = replica(catalog, choice, "bf16", "qwen3-0.6b", machine).model.setup
    assert one.device.bandwidth_bytes_per_s == 4.1e12 != stated.device.bandwidth_bytes_per_s
    assert one.device.peak("bf16") == 7e14
    # Its attention cuts what meets K and V into several products, whose rate was not measured.
    assert one.device.attention_operations_per_s is None
    assert "peak of attention" not in [given.name for given in one.device.inputs]
    assert one.device.peak("fp8") == stated.device.peak("fp8"), "what was not measured is as stated"
    assert one.efficiencies.basis == "from the measured limits of this machine"
    names = [given.name for given in one.device.inputs]
    assert "read bandwidth" in names and not any("bandwidth_bytes_per_s" in one for one in names)
    other = replica(catalog, ReplicaChoice(hardware="h100"), "bf16", "qwen3-0.6b", machine)
    assert other.model.setup.efficiencies.basis == stated.efficiencies.basis
    here = replica(catalog, ReplicaChoice(hardware="this"), "q8-0", "qwen3-0.6b", machine)
    assert here.model.setup.device.bandwidth_bytes_per_s == 2e10


def test_weights_that_a_cache_holds_are_read_from_there(catalog: Catalog) -> None:
    machine = Machine(
        "cpu", 2, 1 << 33, "2026-01-02T03:04:05Z",
        [ReadBandwidth("avx2", 2, 10**9, 2e10), ReadBandwidth("avx2", 2, 4 * 10**8, 9e10)],
        [PeakRate("avx2", 2, "int8", 6e11)],
    )  # fmt: skip
    choice = ReplicaChoice(hardware="this")
    small = replica(catalog, choice, "q4-0", "qwen3-0.6b", machine).model
    large = replica(catalog, choice, "q8-0", "qwen3-0.6b", machine).model
    assert small.setup.device.bandwidth_bytes_per_s == 9e10
    assert large.setup.device.bandwidth_bytes_per_s == 2e10
    # What a step reads beside its weights counts: K and V of long texts leave no room in a cache.
    short, long = (small.decode_step(8, tokens).seconds for tokens in (128, 30_000))
    kv_bytes = 8 * 30_000 * 28 * 2 * 8 * 128 * 2
    assert long > kv_bytes / 2e10 > 20 * short
    # Further rows cost something as soon as reading is quick.
    of_small, of_large = (
        model.decode_step(1, 128, 8).seconds / model.decode_step(1, 128).seconds
        for model in (small, large)
    )
    assert of_small > 1.5 * of_large


def test_speculation_with_and_without_a_draft_model(catalog: Catalog) -> None:
    one = replica(catalog, ReplicaChoice(hardware="8x-h100-sxm"))
    small = shape_of_catalog(catalog.models["llama-3.2-1b"])
    draft = Draft(name="1B", acceptance=0.7, tokens=4, model=one.beside(small, one.storage))
    found = speed_plan(one, LOAD, draft=draft).speculation
    free = speed_plan(one, LOAD, draft=replace(draft, model=None)).speculation
    assert found is not None and free is not None and draft.model is not None
    asked = one.model.speculation(draft.model, 0.7, 4, LOAD.middle_context_tokens)
    assert found.at_batch == asked.points[3] and found.stops_at_batch == asked.stops_at_batch
    assert free.at_batch.speedup > found.at_batch.speedup > 1


def test_a_longer_context_than_the_model_s_is_noted(catalog: Catalog) -> None:
    one = replica(catalog, ReplicaChoice(hardware="8x-h100-sxm"))
    length = one.shape.context_tokens
    assert length is not None
    plan = speed_plan(one, Load(prompt_tokens=length, output_tokens=10), batches=(1,))
    assert any("10 more than the" in note for note in plan.notes)


def test_heads_that_do_not_divide_are_told_and_experts_that_are_none_refused(
    catalog: Catalog,
) -> None:
    three = speed_plan(replica(catalog, ReplicaChoice(hardware="h100", count=3)), LOAD)
    assert any("64 attention heads cannot be divided over 3 devices" in one for one in three.notes)
    two = replica(catalog, ReplicaChoice(hardware="h100", count=2))
    assert not any("do not divide" in one for one in speed_plan(two, LOAD).notes)
    spread = replica(catalog, ReplicaChoice(hardware="h100", count=2, expert=2))
    with pytest.raises(ConfigError, match=r"expert_parallel is 2; .* has no experts"):
        speed_plan(spread, LOAD)
