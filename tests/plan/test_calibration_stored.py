"""A calibration is kept for its machine, and not planned with where it may not hold."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from headrace import __version__
from headrace.errors import ConfigError
from headrace.plan.calibration.measurements import MachineId, MeasurementSet
from headrace.plan.calibration.stored import (
    STALE_AFTER,
    Calibration,
    calibrate,
    calibration_path,
    store_calibration,
    stored_calibration,
)
from tests.plan.calibrations import LARGE, TESTS, measured

NOW = datetime(2026, 11, 23, tzinfo=UTC)


@pytest.fixture(scope="module")
def found() -> Calibration:
    one = calibrate([measured(noise=0.03), measured(LARGE, noise=0.03)])
    return msgspec.structs.replace(one, version=__version__)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path)}


def test_it_comes_back_as_it_was(found: Calibration, environ: dict[str, str]) -> None:
    path = store_calibration(found, environ)
    assert path == calibration_path(environ) and path.is_relative_to(environ["XDG_CACHE_HOME"])
    again = stored_calibration(environ, NOW)
    assert (again.calibration, again.path, again.note) == (found, path, "")


def test_it_says_how_far_it_is_off(found: Calibration) -> None:
    assert found.left_out is not None and found.other_model is not None
    assert found.error.rows == len(found.rows) == 2 * len(TESTS)
    assert found.error.mean <= found.error.tail <= found.error.worst
    measured_here = found.models[0]
    assert found.band(measured_here.model, measured_here.parameters) == found.left_out.tail
    assert found.band("another", 1) == found.other_model.tail
    alone = calibrate([measured(noise=0.03)])
    assert alone.other_model is None and alone.left_out is not None
    assert alone.band("another", 1) == 2 * alone.left_out.tail
    assert not found.is_poor


def test_nothing_stored_is_no_fault(environ: dict[str, str]) -> None:
    found = stored_calibration(environ, NOW)
    assert found.calibration is None and found.note == ""


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"machine": MachineId("another", 64, 1)}, "of another machine, another with 64 CPUs"),
        ({"version": "0.0.1"}, "it is of headrace 0.0.1, this is"),
        ({"headrace_calibration": 99}, "format is 99"),
        ({"measured_at": "never"}, "days ago"),
    ],
)
def test_what_may_not_hold_is_not_used(
    found: Calibration, environ: dict[str, str], changes: dict[str, object], says: str
) -> None:
    path = store_calibration(found, environ)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(found, **changes)))
    result = stored_calibration(environ, NOW)
    assert result.calibration is None and says in result.note and str(path) in result.note
    assert "plan calibrate" in result.note


def test_an_old_one_is_not_used(found: Calibration, environ: dict[str, str]) -> None:
    store_calibration(found, environ)
    late = datetime.fromisoformat(found.measured_at) + STALE_AFTER
    assert stored_calibration(environ, late).calibration is not None
    result = stored_calibration(environ, late + timedelta(days=1))
    assert result.calibration is None and "more than 180 days ago" in result.note


@pytest.mark.parametrize("content", ["", "{}", '{"headrace_calibration":1}', "\xff"])
def test_a_broken_file_is_told(environ: dict[str, str], content: str) -> None:
    path = calibration_path(environ)
    path.parent.mkdir(parents=True)
    path.write_text(content, encoding="latin-1")
    result = stored_calibration(environ, NOW)
    assert result.calibration is None and "is not used" in result.note


def test_rates_that_are_none_are_told(found: Calibration, environ: dict[str, str]) -> None:
    path = store_calibration(found, environ)
    text = path.read_text()
    rate = found.rates["Q8_0"].operations_per_s
    path.write_text(text.replace(str(rate), "-1.0", 1))
    result = stored_calibration(environ, NOW)
    assert result.calibration is None and "operations_per_s" in result.note


def test_another_machine_s_is_not_stored(found: Calibration, environ: dict[str, str]) -> None:
    other = msgspec.structs.replace(found, machine=MachineId("another", 64, 1))
    with pytest.raises(ConfigError, match="measured on another, 64 CPUs"):
        store_calibration(other, environ)
    assert not calibration_path(environ).exists()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"threads": 1}, "differ in threads: 2, 1"),
        ({"cpu_level": "portable"}, "differ in cpu_level: avx2, portable"),
        ({"kv_type": "f32"}, "differ in kv_type: bf16, f32"),
        ({"version": "9"}, "differ in version: 0.1.0, 9"),
        ({"machine": MachineId("another", 1, 1)}, "differ in machine: .*another"),
    ],
)
def test_settings_are_not_mixed(changes: dict[str, object], says: str) -> None:
    one: MeasurementSet = measured(tests=TESTS[:3])
    with pytest.raises(ConfigError, match=says):
        calibrate([one, msgspec.structs.replace(one, **changes)])


def test_nothing_cannot_be_fitted() -> None:
    with pytest.raises(ConfigError, match="nothing to fit"):
        calibrate([])
