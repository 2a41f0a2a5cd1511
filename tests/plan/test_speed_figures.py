"""Figures of speed say where they came from, down to rows of the catalog."""

from __future__ import annotations

import pytest

from headrace.catalog import Catalog
from headrace.plan.machine.device import device_of
from headrace.plan.model.model_shape import shape_of_catalog
from headrace.plan.speed.speed import Load, SpeedModel, SpeedSetup
from headrace.plan.speed.speed_figures import speed_figures
from headrace.plan.step.efficiency import stated_efficiencies
from headrace.plan.step.step import Storage


def test_figures_of_a_model_and_a_device_of_the_catalog() -> None:
    catalog = Catalog.load()
    model = SpeedModel(
        SpeedSetup(
            shape=shape_of_catalog(catalog.models["llama-3.1-8b"]),
            storage=Storage(bytes_per_weight=2),
            device=device_of(catalog, "h100")[0],
            efficiencies=stated_efficiencies(catalog, catalog.hardware["h100"]),
            compute_type="fp8",
        )
    )
    speed = model.speed(Load(prompt_tokens=1000, output_tokens=200, batch=4))
    ttft, tpot, e2e, throughput = speed_figures(model, speed)
    assert tpot.band == (speed.tpot.best_s, speed.tpot.worst_s)
    assert throughput.value == pytest.approx(4 / tpot.value)
    assert throughput.band[0] < throughput.value < throughput.band[1]
    assert {one.formula for one in (ttft, tpot, e2e, throughput)} == {"T1", "T2", "F3", "T4"}
    names = {one.name: one for one in tpot.inputs}
    assert names["h100-sxm.bandwidth_bytes_per_s"].value == 3.35e12
    assert names["h100-sxm.dense_fp8_flops"].disputed_by == ("C32",)
    assert names["bandwidth efficiency"].source == "mbu-decode-server"
    assert names["bandwidth efficiency"].note == "0.6 to 0.8"
    assert [one.source for one in e2e.inputs[:2]] == ["figure speed.ttft", "figure speed.tpot"]
