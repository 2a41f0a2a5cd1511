"""Plans of this machine are made with its calibration, and say so."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from headrace import __version__
from headrace.plan.calibration.stored import (
    Calibration,
    Found,
    calibrate,
    store_calibration,
    stored_calibration,
)
from headrace.plan.memory.kv_cache import kv_kind
from headrace.plan.memory.memory import Storage
from headrace.plan.model.model_shape import shape_of_catalog
from headrace.plan.speed.replica import Replica, ReplicaChoice, replica_of
from headrace.plan.speed.speed import Load
from headrace.plan.speed.speed_plan import SpeedPlan, speed_plan
from headrace.telemetry.machine import Machine, PeakRate, ReadBandwidth, this_machine
from tests.plan.calibrations import CATALOG, LARGE, SMALL, of_all_kinds

LOAD = Load(prompt_tokens=1024, output_tokens=129, batch=8)
MACHINE = Machine(
    *this_machine(),
    measured_at="2026-11-22T08:00:00+00:00",
    read=[ReadBandwidth("avx2", 2, 1_000_000_000, 100e9)],
    peak=[PeakRate("avx2", 2, "int8", 2000e9), PeakRate("avx2", 2, "bf16", 1000e9)],
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    environ = {"XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache"))}
    one = calibrate(of_all_kinds(SMALL) + of_all_kinds(LARGE))
    store_calibration(msgspec.structs.replace(one, version=__version__), environ)
    return stored_calibration(environ, datetime(2026, 11, 23, tzinfo=UTC))


def replica(
    found: Found | None,
    kind: str = "q8-0",
    model: str = SMALL,
    *,
    hardware: str = "this",
    machine: Machine | None = MACHINE,
) -> Replica:
    kv = kv_kind("BF16", CATALOG)
    storage = Storage(CATALOG.quantizations[kind], kv, kv)
    shape = shape_of_catalog(CATALOG.models[model])
    choice = ReplicaChoice(hardware=hardware, step_tokens=512)
    return replica_of(CATALOG, shape, storage, choice, machine, found)


def calibration(found: Found) -> Calibration:
    assert found.calibration is not None
    return found.calibration


def plan(one: Replica) -> SpeedPlan:
    return speed_plan(one, LOAD, batches=(1, 8))


def test_times_are_those_of_the_rates(found: Found) -> None:
    model = replica(found).model
    rates = calibration(found).rates["Q8_0"]
    work = model._counter.decode(8, 100)
    assert model.decode_step(8, 100).seconds == pytest.approx(rates.time(work).seconds)
    chunks = [rates.time(model._counter.prefill(512, at, last=at > 0)).seconds for at in (0, 512)]
    prefill = model.prefill(1024)
    assert prefill.seconds == pytest.approx(sum(chunks))
    assert prefill.parts.seconds == pytest.approx(prefill.seconds)
    assert model.decode_step(1, 0).bottleneck == "bandwidth" and prefill.bottleneck == "compute"


def test_what_was_measured_is_what_is_planned(found: Found) -> None:
    """The rows of the calibration again, through the plan: a chain without a gap."""
    model = replica(found).model
    row = next(
        one for one in calibration(found).rows
        if (one.model, one.kind, one.test) == ("Qwen3 0.6B", "Q8_0", "tg32 b8")
    )  # fmt: skip
    planned = 8 / model.decode_step(8, 16).seconds
    assert planned == pytest.approx(row.measured_tokens_per_s, rel=0.03)


def test_it_is_said_with_file_and_date(found: Found) -> None:
    answer = plan(replica(found))
    said = " ".join(answer.speed.assumptions)
    assert f"calibrated: {found.path} of 2026-11-22" in said
    assert "of the data sheet" not in said
    as_json = answer.as_dict()
    assert as_json["basis"] == "calibrated"
    tpot = next(one for one in as_json["quantities"] if one["id"] == "speed.tpot")
    assert tpot["formula_id"] == "T2C"
    inputs = {one["name"]: one for one in tpot["inputs"]}
    rate = inputs["calibrated operations"]
    assert rate["basis"] == "measured" and rate["as_of"] == "2026-11-22"
    assert rate["source"] == str(found.path) and rate["unit"] == "operation/s"


def test_the_band_is_the_error_of_the_fit(found: Found) -> None:
    speed = plan(replica(found)).speed
    band = calibration(found).band("Qwen3 0.6B", replica(found).shape.parameters.total)
    assert speed.tpot.worst_s == pytest.approx(speed.tpot.value_s * (1 + band))
    assert speed.tpot.best_s == pytest.approx(speed.tpot.value_s / (1 + band))


def test_shares_are_of_the_machine_s_limits(found: Found) -> None:
    efficiencies = replica(found).model.setup.efficiencies
    assert efficiencies.bandwidth.value == pytest.approx(0.8, rel=0.05)
    assert efficiencies.compute.value == pytest.approx(1280 / 2000, rel=0.05)


def test_no_limits_are_needed(found: Found) -> None:
    one = replica(found, machine=None)
    assert one.model.setup.efficiencies.basis == "calibrated"
    assert plan(one).speed.tpot.value_s == plan(replica(found)).speed.tpot.value_s


def test_without_one_the_measured_limits_are_said() -> None:
    limits = "from the measured limits of this machine"
    answer = plan(replica(None))
    assert answer.as_dict()["basis"] == limits
    assert limits in answer.speed.assumptions
    note = Found(None, Path("x"), "the calibration x is not used: it is of another machine")
    refused = plan(replica(note)).speed.assumptions
    assert f"{limits}: the calibration x is not used: it is of another machine" in refused


def test_a_kind_that_was_not_measured_is_from_the_limits(found: Found) -> None:
    answer = plan(replica(found, "q6-k"))
    assert answer.as_dict()["basis"] == "from the measured limits of this machine"
    assert "has no Q6_K weights (there is BF16, Q8_0, Q4_K)" in " ".join(answer.speed.assumptions)


def test_a_mix_is_of_its_first_kind(found: Found) -> None:
    setup = replica(found, "q4-k-m").model.setup
    assert setup.efficiencies.rates == calibration(found).rates["Q4_K"]


def test_other_hardware_is_not_of_this_machine(found: Found) -> None:
    one = replica(found, hardware="h100")
    assert one.calibration is None and one.model.setup.efficiencies.basis == "from data sheet"


def test_a_draft_has_the_rates_of_its_own_weights(found: Found) -> None:
    one = replica(found, "q8-0", LARGE)
    kv = kv_kind("BF16", CATALOG)
    small = shape_of_catalog(CATALOG.models[SMALL])
    draft = one.beside(small, Storage(CATALOG.quantizations["q4-k-m"], kv, kv))
    assert draft.setup.efficiencies.rates == calibration(found).rates["Q4_K"]
    same = one.beside(small, Storage(CATALOG.quantizations["q6-k"], kv, kv))
    assert same.setup.efficiencies.basis == "from the measured limits of this machine"


def test_a_card_has_a_calibration_of_its_own(tmp_path: Path) -> None:
    """Kept beside that of the kernels; each plan takes its own."""
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    fitted = calibrate(of_all_kinds(SMALL) + of_all_kinds(LARGE))
    kernels = msgspec.structs.replace(fitted, version=__version__)
    card = msgspec.structs.replace(kernels, cpu_level="cuda NVIDIA H200", threads=1)
    paths = {store_calibration(one, environ) for one in (kernels, card)}
    now = datetime(2026, 11, 23, tzinfo=UTC)
    of_kernels = stored_calibration(environ, now)
    of_card = stored_calibration(environ, now, "NVIDIA H200")
    assert {of_kernels.path, of_card.path} == paths and len(paths) == 2
    assert calibration(of_card).cpu_level == "cuda NVIDIA H200"
    assert replica(of_card, hardware="h200").model.setup.efficiencies.rates is not None
    assert replica(of_kernels, hardware="h200").model.setup.efficiencies.rates is None
    assert replica(of_card, hardware="h100-sxm").model.setup.efficiencies.rates is None
