"""`headrace bench load --sweep` over loads of one's own choice."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import click
import pytest

from headrace.bench.load.sweep import SweepOptions
from headrace.bench.report.files import read_result
from headrace.bench.report.saved_run import read_saved_run
from headrace.bench.series import read_series
from headrace.cli.bench.load.command import experiment_of
from headrace.cli.bench.load.setup import load_of, sweep_of
from headrace.errors import ConfigError
from tests.cli.bench.test_load import SHORT, mock, run
from tests.cli.bench.test_load_flags import given


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("--sweep --rate 1,2,5", SweepOptions(rates=(1.0, 2.0, 5.0))),
        ("--rate 0.5,2 -c 9 --sweep", SweepOptions(rates=(0.5, 2.0))),
        ("--sweep -c 1,4,16", SweepOptions(users=(1, 4, 16))),
        ("--sweep http://h:1 --max-concurrency 1,4", SweepOptions(users=(1, 4))),
        ("--sweep", SweepOptions(points=8)),
        ("--sweep 5 -c 32", SweepOptions(points=5)),
        ("--sweep localhost:8000", SweepOptions(points=8)),
        ("--profile constant --rate 1,2", SweepOptions(rates=(1.0, 2.0))),
        ("--profile concurrent --rate 1,16", SweepOptions(users=(1, 16))),
        ("--profile concurrent -c 1,16", SweepOptions(users=(1, 16))),
        ("--rate 5", None),
    ],
)
def test_which_loads_a_sweep_has(line: str, wanted: SweepOptions | None) -> None:
    assert sweep_of(given(line)) == wanted


def test_what_stands_beside_a_list_stays() -> None:
    found = given("--sweep --rate 1,2 -c 9 --arrivals constant")
    options = load_of(found)
    assert (options.rate, options.concurrency, options.arrivals) == (None, 9, "constant")
    assert given("--sweep http://h:1 -c 1,2")["url"] == "http://h:1"
    assert given("--profile poisson --rate 1,2")["arrivals"] == "poisson"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--rate 1,2,5", "--rate 1,2,5 is a list, which only a sweep takes; add --sweep"),
        ("-c 1,4", "--concurrency 1,4 is a list, which only a sweep takes; add --sweep"),
        ("--search --goodput ttft:5 --rate 1,2", "a --search takes one first rate"),
        ("--sweep 8 --rate 1,2", "--sweep 8 chooses its loads and --rate 1,2 names them"),
        ("--sweep --rate 5", "or give a list of rates: --rate 1,2,5"),
        ("--sweep --rate 1,2 -c 1,2", "are both lists"),
        ("--sweep --rate 1,2,1", "--rate of a sweep: 1 is listed twice"),
        ("--sweep --rate 1,inf", "inf is not a finite number above 0"),
        ("--sweep -c 1,4 --rate 3", "has no rate; omit --rate"),
        ("--sweep -c 1,4 --burstiness 0.5", "--burstiness 0.5 needs a rate"),
        ("--sweep -c 1,4 --stop-when-saturated", "never send more than the server answers"),
        ("--sweep --rate 1,2 --ramp-from 1", "omit --ramp-from"),
        ("--sweep --rate 1,2 --ramp 3", "--ramp 3 needs a closed loop"),
        ("--sweep --rate 1,2 --trace f", "--sweep chooses its own times"),
        ("--profile sweep --rate 3,4", "--rate 3,4 of --profile sweep must be one number"),
        ("--profile throughput -c 3,4", "-c 3,4 of --profile throughput must be one number"),
        ("--profile concurrent --rate 1.5,4", "--rate 1.5 of --profile concurrent"),
        ("--profile concurrent --rate inf", "--rate inf of --profile concurrent"),
        ("--profile constant --rate 2 --sweep", "both set the load; give one of them"),
    ],
)
def test_what_a_list_goes_not_with(line: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    line = line.replace("--trace f", f"--trace {shlex.quote(str(tmp_path / 'f'))}")
    with pytest.raises(ConfigError) as raised:
        given(line)
    assert told in str(raised.value)


def test_more_loads_than_a_sweep_takes() -> None:
    with pytest.raises(ConfigError, match="101 loads are not from 2 to 100; write a list such as"):
        given(f"--sweep -c {','.join(str(users) for users in range(1, 102))}")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--rate ''", "'' is not a number above 0"),
        ("--rate nan", "'nan' is not a number above 0"),
        ("--sweep --rate 1,,2", "'' in '1,,2' is not a number above 0"),
        ("--sweep --rate 1,-2", "'-2' in '1,-2' is not a number above 0; write one such as 2.5"),
        ("-c 0", "'0' is not a whole number above 0; write one such as 16"),
        ("--sweep -c 1,2.5", "'2.5' in '1,2.5' is not a whole number above 0"),
        ("--sweep 2", "'2' is not a number of points from 3 to 100"),
        ("--sweep 1,2,5", "give a list: --sweep --rate 1,2,5"),
    ],
)
def test_what_is_no_load(line: str, told: str) -> None:
    with pytest.raises(click.BadParameter) as raised:
        given(line)
    assert told in raised.value.message
    assert raised.value.param is not None


@pytest.mark.load
def test_a_sweep_over_users_is_kept_and_shown(tmp_path: Path) -> None:
    with mock(capacity=2, ttft_ms=5) as endpoint:
        done = run(
            *(endpoint.url, "--sweep", "-c", "4,1,2", "-n", "8", *SHORT),
            *("--save", str(tmp_path), "--goodput", "ttft:60000", "--json"),
        )
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)["sweep"]
    assert [(one["name"], one["users"], one["rate"]) for one in told] == [
        ("1 at a time", 1, None),
        ("2 at once", 2, None),
        ("4 at once", 4, None),
    ]
    assert [one["about"]["load"] for one in told][-1] == "closed loop of 4, 8 requests"
    assert all(one["batching_efficiency"] for one in told)
    series = read_series(tmp_path)
    assert series is not None and series.shown == "runs/03"
    assert [(one.users, one.rate) for one in series.runs] == [(1, None), (2, None), (4, None)]
    assert read_saved_run(tmp_path).run.about["load"] == "closed loop of 4, 8 requests"
    assert read_result(tmp_path / "runs/02").about["load"] == "closed loop of 2, 8 requests"
    kept = json.loads((tmp_path / "runs/02/result.json").read_bytes())
    assert (kept["request_rate"], kept["max_concurrency"]) == ("inf", 2)
    page = (tmp_path / "report.html").read_text()
    assert "Good requests over users" in page and "4 users, completed" in page


def test_a_sweep_over_rates_is_kept_and_shown(tmp_path: Path) -> None:
    with mock() as endpoint:
        done = run(
            *(endpoint.url, "--sweep", "--rate", "100,300", "-c", "50", "-n", "8"),
            *("--input-tokens", "8", "--output-tokens", "4", "--save", str(tmp_path)),
        )
    assert done.exit_code == 0, done.output
    for text in ("100/s: ", "300/s: ", "Loads"):
        assert text in done.output
    series = read_series(tmp_path)
    assert series is not None and [one.rate for one in series.runs] == [100.0, 300.0]
    assert [one.users for one in series.runs] == [None, None]
    kept = json.loads((tmp_path / "result.json").read_bytes())
    assert (kept["request_rate"], kept["max_concurrency"]) == (300.0, 50)
    assert "TTFT over requests per second" in (tmp_path / "report.html").read_text()


@pytest.mark.load
@pytest.mark.parametrize(
    ("slo", "status"),
    [
        ("ttft:60000", 0),
        ("ttft:0.001", 4),
        ("ttft:p95<60000ms", 0),
    ],
)
def test_a_sweep_is_required_to_meet_its_slo_at_some_load(slo: str, status: int) -> None:
    load = ["--sweep", "-c", "1,2", "-n", "4", *SHORT, "--goodput", slo]
    with mock() as endpoint:
        required = run(endpoint.url, *load, "--require-slo")
        told = run(endpoint.url, *load)
    assert (required.exit_code, told.exit_code) == (status, 0), required.output
    assert ("the SLO was missed at every load" in required.stderr) == (status == 4)


def test_what_failed_comes_before_a_missed_slo() -> None:
    load = ["--sweep", "-c", "1,2", "-n", "4", *SHORT, "--goodput", "ttft:0.001", "--require-slo"]
    with mock(errors=(("500", 1.0),)) as endpoint:
        nothing = run(endpoint.url, *load)
    assert nothing.exit_code == 3, nothing.output


def test_a_sweep_has_connections_for_its_users() -> None:
    with mock() as endpoint:
        for line, least in (("--sweep 3", 64), ("--sweep -c 1,20000", 20_000), ("-c 5", 5)):
            experiment, _ = experiment_of([endpoint.url, *shlex.split(line), *SHORT])
            assert experiment.limits.max_connections >= least


def test_the_run_of_a_command_without_what_it_would_print(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with mock() as endpoint:
        experiment, options = experiment_of([endpoint.url, "-c", "2", "-n", "4", *SHORT])
        done = experiment.run(options)
        with pytest.raises(ConfigError, match="both give the address"):
            experiment_of([endpoint.url, "--base-url", "http://h:1"])
    assert done.summary.requests.completed == 4
    assert done.options.concurrency == 2
    assert str(done.run.about["command"]).startswith("headrace bench load http://")
    assert capsys.readouterr().out == ""
