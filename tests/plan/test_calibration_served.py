"""Step times from runs of `bench load`: those that made the runs come out again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from headrace.errors import ConfigError
from headrace.plan.calibration.runs import read_runs, with_runs
from headrace.plan.calibration.served import alone_of, fit_served, server_steps, stretches_of
from headrace.plan.calibration.stored import Calibration, calibrate
from headrace.plan.calibration.stored import Found as Stored
from headrace.plan.run_file import read_run
from headrace.plan.simulation.engine_of import measured_latency
from tests.plan.calibrations import LARGE, measured
from tests.plan.runs import LINE, Asked, about, alone, crowded, served, write_run

ENGINE = replace(LINE, decode_request_s=1e-4, request_s=0.0, source="engine")


def test_the_steps_that_made_the_streams_are_found() -> None:
    found = fit_served([alone(), crowded()])
    assert found.fitted and found.alone >= 30 and found.requests == 150 and found.runs == 2
    assert found.errors is not None and found.errors.mean < 0.02
    for prefills, batch, context in ([(0, 200)], 0, 0), ([], 1, 150), ([], 12, 2000):
        assert found.latency.step(prefills, batch, context) == pytest.approx(
            LINE.step(prefills, batch, context), rel=0.03
        )
    assert found.latency.request_s == pytest.approx(LINE.request_s, rel=0.1)
    assert found.latency.source == ("streams of headrace bench load, 150 requests, 2026-11-22")
    assert found.measured_at.startswith("2026-11-22T08")


def test_a_stretch_counts_what_others_did_in_it() -> None:
    run = served([Asked(0.0, 100, 50), Asked(0.05, 200, 10)])
    long = max(stretches_of(run), key=lambda one: one.seconds)
    assert long.terms.steps == 49 and long.terms.prefill_tokens == 200
    assert long.terms.decode_requests == 49 + 9
    assert long.terms.decode_context_tokens == sum(range(101, 150)) + sum(range(201, 210))
    assert long.seconds == pytest.approx(
        LINE.step([(0, 200)], 0, 0)
        - LINE.step_s
        + 49 * LINE.step_s
        + 58 * LINE.decode_request_s
        + long.terms.decode_context_tokens * LINE.decode_context_token_s
    )


def test_alone_is_who_waited_for_nobody() -> None:
    run = served([Asked(0.0, 100, 20), Asked(0.01, 100, 20), Asked(5.0, 100, 5)])
    (one,) = alone_of(run)
    assert one.ttft_s == pytest.approx(LINE.step([(0, 100)], 0, 0) + LINE.request_s)
    every = msgspec.structs.replace(run.requests[-1], cached_tokens=100)
    assert alone_of(msgspec.structs.replace(run, requests=(*run.requests[:-1], every))) == []
    (long,) = alone_of(served([Asked(0.0, 100, 5)]), step_tokens=40)
    assert long.terms.steps == 3


def test_of_a_prompt_that_begins_like_others_the_rest_is_read() -> None:
    """Prompts of a chat begin alike by their template, so that hardly one is read whole."""
    run = served([Asked(0.0, 100, 5)])
    (request,) = run.requests
    begun = msgspec.structs.replace(request, cached_tokens=4)
    (one,) = alone_of(msgspec.structs.replace(run, requests=(begun,)))
    assert one.terms == (1, 96, sum(range(5, 101)), 0, 0)


def test_of_one_user_alone_the_engines_steps_are_kept() -> None:
    found = fit_served([alone()], LINE)
    assert not found.fitted
    assert found.latency.request_s == pytest.approx(LINE.request_s)
    assert replace(found.latency, request_s=LINE.request_s, source="") == LINE
    assert "outside of steps from headrace bench load, 30 requests" in found.latency.source
    assert found.engine_errors == found.errors
    with pytest.raises(ConfigError, match="--concurrency 1 and --concurrency 8"):
        fit_served([alone()])


def test_without_a_lone_request_nothing_tells_what_lies_outside() -> None:
    with pytest.raises(ConfigError, match="were alone until their first token, 5 are needed"):
        fit_served([served([Asked(0.001 * at, 100, 50) for at in range(40)])], LINE)


def test_the_servers_own_figures_stand_beside_the_engines_line() -> None:
    told = server_steps([alone(), crowded()], LINE)
    assert told is not None and abs(told.error) < 0.05
    assert told.queue_s > 0 and told.prefill_s > LINE.step_s
    slower = server_steps([alone(), crowded()], ENGINE)
    assert slower is not None and slower.error < told.error - 0.05
    silent = msgspec.structs.replace(alone(), readings=())
    assert server_steps([silent], LINE) is None
    assert fit_served([silent], LINE).server is None


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    return calibrate([measured(), measured(LARGE)])


def test_a_model_is_planned_as_it_was_served(calibration: Calibration, tmp_path: Path) -> None:
    name = calibration.models[0].model
    as_served = name.replace(" ", "-").lower()
    runs = [msgspec.structs.replace(one, about=about(as_served)) for one in (alone(), crowded())]
    folders = [write_run(tmp_path / str(at), run) for at, run in enumerate(runs)]
    found = with_runs(calibration, read_runs(folders))
    first, second = found.models
    assert first.served is not None and first.planned == first.served.latency != first.latency
    assert second.planned == second.latency
    assert measured_latency(Stored(found, tmp_path), "this", name) == first.served.latency
    again = msgspec.json.decode(msgspec.json.encode(found), type=Calibration)
    assert again == found
    assert with_runs(calibration, runs, second.model).models[1].served is not None


def test_runs_that_do_not_belong_to_it(calibration: Calibration) -> None:
    with pytest.raises(ConfigError, match="is of Served, which is not calibrated; calibrated are"):
        with_runs(calibration, [alone()])
    elsewhere = msgspec.structs.replace(alone(), about=about() | {"client_cpus": 999})
    with pytest.raises(ConfigError, match="send the load from the machine that serves"):
        with_runs(calibration, [elsewhere])
    both = calibrate([measured(), measured(kind="BF16")])
    with pytest.raises(ConfigError, match="several kinds of weights"):
        with_runs(both, [alone()], both.models[0].model)


def test_chunks_are_read_where_they_are_asked_for(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", alone(3))
    plain, whole = read_run(folder), read_run(folder, with_chunks=True)
    assert plain.requests[0].content_s == () and len(whole.requests[0].content_s) == 40
    assert plain.requests[0].ttft_s == whole.requests[0].ttft_s is not None
