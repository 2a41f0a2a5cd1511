"""TTFT, TPOT, throughput and the knee: notional vectors, limits, laws; pages of real models."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.catalog import Catalog
from headrace.errors import ConfigError
from headrace.plan.machine.device import Device, Link, device_of
from headrace.plan.model.model_shape import shape_of_catalog
from headrace.plan.speed.speed import Load, SpeedModel, SpeedSetup, e2e_s
from headrace.plan.step.communication import Parallelism, communication
from headrace.plan.step.efficiency import Efficiencies, Efficiency, exactly, stated_efficiencies
from headrace.plan.step.step import Storage
from tests.plan.shapes import BILLION, DENSE_70B, MOE, shape

CATALOG = Catalog.load()
H100 = Device(
    name="H100",
    bandwidth_bytes_per_s=3.35e12,
    peak_operations_per_s={"bf16": 989e12, "fp8": 1979e12},
    link=Link(name="NVLink 4", bandwidth_bytes_per_s=450e9, latency_s=10e-6),
    devices_per_machine=8,
)
PEAK = Efficiencies(bandwidth=exactly(1, "the sheet"), compute=exactly(1, "the sheet"))
NOTIONAL = SpeedSetup(
    shape=DENSE_70B,
    storage=Storage(bytes_per_weight=2),
    device=H100,
    efficiencies=PEAK,
    prefill_chunk_tokens=1_000_000,
)
MODEL = SpeedModel(NOTIONAL)


def test_f13_a_notional_70b_on_one_h100() -> None:
    assert MODEL.prefill(1000).seconds == pytest.approx(141.6e-3, rel=0.011)  # and attention
    assert MODEL.prefill(1000).bottleneck == "compute"
    assert MODEL.decode_step(1, 0).seconds == pytest.approx(42e-3, rel=0.01)
    assert MODEL.decode_step(1, 0).bottleneck == "bandwidth"


def test_f3_e2e_counts_the_first_token_once() -> None:
    assert e2e_s(0.5, 0.03, 101) == pytest.approx(3.5)
    assert e2e_s(0.5, 0.03, 1) == 0.5
    speed = MODEL.speed(Load(prompt_tokens=1000, output_tokens=101))
    assert speed.e2e.value_s == pytest.approx(speed.ttft.value_s + 100 * speed.tpot.value_s)


def test_knees_are_the_ridge_times_the_bytes_of_a_weight() -> None:
    tiny_kv = replace(NOTIONAL, shape=shape((), attention=70 * BILLION, hidden_size=1))
    assert SpeedModel(tiny_kv).knee_batch(0) == 296
    four_bit = replace(tiny_kv, storage=Storage(bytes_per_weight=0.5))
    assert SpeedModel(four_bit).knee_batch(0) == 74
    fp8 = replace(tiny_kv, storage=Storage(bytes_per_weight=1), compute_type="fp8")
    assert SpeedModel(fp8).knee_batch(0) == 296


def test_a_knee_is_where_the_bottleneck_turns() -> None:
    knee = MODEL.knee_batch(500)
    assert knee is not None
    assert MODEL.decode_step(knee - 1, 500).bottleneck == "bandwidth"
    assert MODEL.decode_step(knee + 1, 500).bottleneck == "compute"


def test_long_contexts_have_no_knee() -> None:
    # 327,680 B a token: beyond 1,500 tokens reading them takes longer than 140 GFLOP.
    assert MODEL.knee_batch(1400) is not None
    assert MODEL.knee_batch(1600) is None


def test_a_knee_at_once_where_products_are_slow() -> None:
    slow = replace(H100, peak_operations_per_s={"bf16": 1e12})
    assert SpeedModel(replace(NOTIONAL, device=slow)).knee_batch(0) == 1


def test_a_cached_prefix_saves_its_part_and_leaves_a_token() -> None:
    load = Load(prompt_tokens=2000, output_tokens=1, cached_prompt_share=0.5)
    assert load.cached_tokens == 1000
    speed = MODEL.speed(load)
    assert speed.ttft.value_s == MODEL.prefill(2000, 1000).seconds
    # The 2nd thousand sees the first: half the products, three quarters of the attention.
    halves = MODEL.prefill(1000).seconds, MODEL.prefill(2000, 1000).seconds
    assert halves[0] < halves[1] < MODEL.prefill(2000).seconds
    assert Load(prompt_tokens=2000, output_tokens=1, cached_prompt_share=1).cached_tokens == 1999


def test_chunks_add_up() -> None:
    chunked = SpeedModel(replace(NOTIONAL, prefill_chunk_tokens=1000))
    assert chunked.prefill(2500).seconds == pytest.approx(MODEL.prefill(2500).seconds, rel=1e-6)


def test_speed_of_a_load_by_hand() -> None:
    load = Load(prompt_tokens=1000, output_tokens=201, batch=8)
    assert load.middle_context_tokens == 1100
    speed = MODEL.speed(load)
    step = MODEL.decode_step(8, 1100).seconds
    assert speed.tpot.value_s == step
    assert speed.user_tokens_per_s == pytest.approx(1 / step)
    assert speed.system_tokens_per_s == pytest.approx(8 / step)
    assert speed.tpot.best_s == speed.tpot.value_s == speed.tpot.worst_s
    assert (speed.prefill_bottleneck, speed.decode_bottleneck) == ("compute", "bandwidth")


def test_bands_are_the_ends_of_the_efficiencies() -> None:
    share = Efficiency(low=0.5, value=0.8, high=1.0, source="me")
    banded = SpeedModel(
        replace(NOTIONAL, efficiencies=Efficiencies(bandwidth=share, compute=share))
    )
    speed = banded.speed(Load(prompt_tokens=1000, output_tokens=11))
    for band in (speed.ttft, speed.tpot, speed.e2e):
        assert band.value_s == pytest.approx(band.best_s / 0.8)
        assert band.worst_s == pytest.approx(2 * band.best_s)
    assert any("80% (50% to 100%) of the data sheet (me)" in line for line in speed.assumptions)


def test_what_is_left_out_is_said() -> None:
    said = " ".join(MODEL.speed(Load(prompt_tokens=9, output_tokens=9)).assumptions)
    assert "TTFT is prefill alone" in said and "waits in the queue" in said
    assert "uniformly" not in said
    assert "uniformly" in " ".join(SpeedModel(replace(NOTIONAL, shape=MOE)).assumptions)


def test_tensor_parallel_divides_reading_and_adds_links() -> None:
    two = SpeedModel(replace(NOTIONAL, parallelism=Parallelism(tensor=2)))
    one_step, two_step = MODEL.decode_step(4, 1000), two.decode_step(4, 1000)
    assert two_step.parts.bandwidth_s == pytest.approx(one_step.parts.bandwidth_s / 2)
    sent = communication(H100, Parallelism(tensor=2), tokens=4, hidden_size=8192, layers=80)
    assert two_step.parts.communication_s == pytest.approx(sent.seconds)
    speed = two.speed(Load(prompt_tokens=10, output_tokens=10))
    assert speed.devices == 2
    assert speed.system_tokens_per_s_and_device == pytest.approx(speed.system_tokens_per_s / 2)


def test_a_pipeline_takes_its_part_of_the_batch_through_all_layers() -> None:
    two = SpeedModel(replace(NOTIONAL, parallelism=Parallelism(pipeline=2)))
    sent = communication(H100, Parallelism(pipeline=2), tokens=4, hidden_size=8192, layers=80)
    assert two.decode_step(8, 1000).seconds == pytest.approx(
        MODEL.decode_step(4, 1000).seconds + sent.seconds
    )


def test_a_pipeline_halves_a_prefill_but_for_its_ends() -> None:
    chunked = replace(NOTIONAL, prefill_chunk_tokens=1000)
    two = SpeedModel(replace(chunked, parallelism=Parallelism(pipeline=2)))
    parts = two.prefill(4000).parts
    whole = parts.compute_s + parts.communication_s
    assert two.prefill(4000).seconds == pytest.approx(whole / 2 / (1 - 1 / 5))
    alone = SpeedModel(chunked).prefill(1000).seconds
    assert two.prefill(1000).seconds == pytest.approx(alone, rel=0.001)  # nothing to overlap


def test_launches_take_their_time() -> None:
    slow = SpeedModel(replace(NOTIONAL, efficiencies=replace(PEAK, operation_s=1e-6)))
    assert slow.decode_step(1, 0).parts.overhead_s == pytest.approx(800e-6)


def test_sweep_has_every_batch_at_every_context() -> None:
    points = MODEL.sweep([1, 8], [0, 1000, 4000])
    assert [(one.context_tokens, one.batch) for one in points] == [
        (0, 1), (0, 8), (1000, 1), (1000, 8), (4000, 1), (4000, 8)
    ]  # fmt: skip
    for one in points:
        assert one.system_tokens_per_s == pytest.approx(one.batch / one.tpot_s)


def test_a_mixture_gains_less_from_its_first_requests_than_a_dense_model() -> None:
    mixture = SpeedModel(replace(NOTIONAL, shape=MOE))

    def gain(model: SpeedModel) -> float:
        one, eight = model.sweep([1, 8], [0])
        return eight.system_tokens_per_s / one.system_tokens_per_s

    assert gain(MODEL) == pytest.approx(8, rel=0.001)
    assert gain(mixture) < 4


def test_speculation_stops_at_some_batch_of_a_dense_model() -> None:
    draft = SpeedModel(replace(NOTIONAL, shape=shape((), attention=BILLION, hidden_size=1)))
    result = MODEL.speculation(draft, 0.7, 4, context_tokens=0, largest_batch=300)
    assert result.points[0].speedup == pytest.approx(2.62, abs=0.005)
    # (2.7731 − 4/70) / 5 · 295.2; both models turn to compute together.
    assert result.stops_at_batch == pytest.approx(160, abs=2)
    long = MODEL.speculation(draft, 0.7, 4, context_tokens=30_000, largest_batch=300)
    assert long.stops_at_batch is None


def test_a_real_model_on_a_real_device() -> None:
    row = CATALOG.hardware["h100"]
    device, _ = device_of(CATALOG, "h100")
    setup = SpeedSetup(
        shape=shape_of_catalog(CATALOG.models["llama-3.1-8b"]),
        storage=Storage(bytes_per_weight=2),
        device=device,
        efficiencies=stated_efficiencies(CATALOG, row),
    )
    speed = SpeedModel(setup).speed(Load(prompt_tokens=1000, output_tokens=200))
    # 15.0 GB without the input embedding, over 0.7 · 3.35 TB/s, and 320 launches of 3 us.
    assert speed.tpot.value_s == pytest.approx(15.0e9 / (0.7 * 3.35e12) + 0.96e-3, rel=0.02)
    assert speed.tpot.best_s < speed.tpot.value_s < speed.tpot.worst_s


@given(
    batch=st.integers(1, 500),
    more=st.integers(1, 500),
    context=st.integers(0, 50_000),
    mixture=st.booleans(),
)
def test_latency_and_throughput_grow_with_the_batch(
    batch: int, more: int, context: int, mixture: bool
) -> None:
    model = SpeedModel(replace(NOTIONAL, shape=MOE)) if mixture else MODEL
    small, large = model.sweep([batch, batch + more], [context])
    assert large.tpot_s >= small.tpot_s
    assert large.system_tokens_per_s >= small.system_tokens_per_s * (1 - 1e-12)
    assert model.decode_step(batch, context + more).seconds >= small.tpot_s


@given(prompt=st.integers(1, 20_000), few=st.floats(0, 1), many=st.floats(0, 1))
def test_more_cached_is_never_later(prompt: int, few: float, many: float) -> None:
    few, many = sorted((few, many))
    late, soon = (
        MODEL.prefill(
            prompt,
            Load(prompt_tokens=prompt, output_tokens=1, cached_prompt_share=one).cached_tokens,
        ).seconds
        for one in (few, many)
    )
    # Where reading decides, a cached token is still read, and no more.
    assert soon <= late * (1 + 1e-12)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Load(prompt_tokens=0, output_tokens=1), "prompt_tokens is 0.*at least 1"),
        (lambda: Load(prompt_tokens=1, output_tokens=0), "output_tokens is 0.*at least 1"),
        (lambda: Load(prompt_tokens=1, output_tokens=1, batch=0), "batch is 0.*at least 1"),
        (
            lambda: Load(prompt_tokens=1, output_tokens=1, cached_prompt_share=2),
            "cached_prompt_share is 2.*from 0 to 1",
        ),
        (lambda: MODEL.prefill(5, 5), "prompt_tokens - cached_tokens is 0.*at least 1"),
        (lambda: MODEL.knee_batch(0, 0), "largest_batch is 0.*at least 1"),
        (
            lambda: SpeedModel(replace(NOTIONAL, compute_type="fp4")),
            "compute_type is 'fp4'; H100 has a peak for bf16, fp8",
        ),
        (
            lambda: SpeedModel(
                replace(
                    NOTIONAL, device=replace(H100, link=None), parallelism=Parallelism(tensor=2)
                )
            ),
            "link_bytes_per_s and link_latency_s of H100 are not known",
        ),
    ],
)
def test_errors_name_field_value_and_limit(call: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        call()  # type: ignore[operator]
