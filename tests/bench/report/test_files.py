"""A run written to disk and read back."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from headrace.bench.definitions import DEFINITIONS
from headrace.bench.record import Failure
from headrace.bench.report.csv_rows import csv_lines
from headrace.bench.report.files import (
    CSV,
    METRICS,
    REQUESTS,
    RESULT,
    read_requests,
    read_result,
    read_run,
    write_requests,
    write_run,
    write_text,
)
from headrace.bench.slo import parse_slo
from headrace.bench.summary import summarize
from headrace.bench.vllm_form import VllmForm
from headrace.bench.vllm_result import vllm_result
from headrace.errors import ConfigError
from tests.bench.report.synthetic import simulated
from tests.bench.streams import run, steady, stream

SLO = parse_slo("ttft:500 tpot:50 itl:p99<1s")
MADE = simulated(requests=60, failing=0.1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    where = tmp_path / "runs" / "one"
    write_run(where, MADE, summarize(MADE, slo=SLO), slo=SLO, vllm_keys={"model_id": "m"})
    return where


def test_everything_comes_back(folder: Path) -> None:
    assert read_run(folder) == MADE and read_run(folder / RESULT) == MADE
    result = read_result(folder)
    assert result.summary == summarize(MADE, slo=SLO) and result.slo == SLO.text
    assert sorted(one.name for one in folder.iterdir()) == sorted((RESULT, REQUESTS, CSV, METRICS))


def test_scripts_for_vllm_find_their_keys_on_top(folder: Path) -> None:
    whole = json.loads((folder / RESULT).read_bytes())
    wanted = vllm_result(MADE, slo=SLO, form=VllmForm(percentiles=(50.0, 90.0, 95.0, 99.0)))
    assert whole["model_id"] == "m" and whole.keys() - wanted.keys() == {"model_id", "headrace"}
    for key in ("mean_ttft_ms", "p99_tpot_ms", "output_throughput", "request_goodput"):
        assert whole[key] == pytest.approx(wanted[key])


def test_details_for_vllm_are_written_when_asked(tmp_path: Path) -> None:
    write_run(tmp_path, MADE, summarize(MADE), vllm_form=VllmForm(detailed=True))
    whole = json.loads((tmp_path / RESULT).read_bytes())
    assert len(whole["ttfts"]) == whole["completed"] + whole["failed"]


def test_a_result_that_does_not_fit_its_requests_is_refused(folder: Path) -> None:
    lines = (folder / REQUESTS).read_bytes().splitlines(keepends=True)
    (folder / REQUESTS).write_bytes(b"".join(lines[:-3]))
    with pytest.raises(ConfigError, match=r"requests\.jsonl.* has 57 lines where .* says 60"):
        read_run(folder)


def test_a_writer_that_died_leaves_whole_lines(folder: Path) -> None:
    whole = (folder / REQUESTS).read_bytes()
    (folder / REQUESTS).write_bytes(whole[:-40])
    assert list(read_requests(folder / REQUESTS)) == list(MADE.requests[:-1])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{}", "is not a result of headrace bench"),
        (b"<html>", "is not a result of headrace bench"),
        (b'{"mean_ttft_ms": 3}', "missing required field `headrace`"),
        (b'{"headrace": {"slo": "\xff"}}', "is not a result of headrace bench"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "other.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        read_result(path)


def test_a_newer_format_is_refused(folder: Path) -> None:
    whole = json.loads((folder / RESULT).read_bytes())
    whole["headrace"]["format"] = 99
    (folder / RESULT).write_text(json.dumps(whole))
    with pytest.raises(ConfigError, match="has format 99, this version reads 1"):
        read_result(folder)


def test_missing_files_and_broken_lines_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.json.*No such file"):
        read_result(tmp_path / "none.json")
    with (folder / REQUESTS).open("ab") as file:
        file.write(b'{"index": "x"}\n')
    with pytest.raises(ConfigError, match=r"requests\.jsonl.*line 61"):
        read_run(folder)
    (folder / METRICS).unlink()
    (folder / REQUESTS).write_bytes(b"")
    with pytest.raises(ConfigError, match=r"metrics\.jsonl.*stay in one folder"):
        read_run(folder)


def test_an_interrupted_write_leaves_what_was_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (folder / REQUESTS).read_bytes()

    def fails(*_: object) -> int:
        raise OSError("disk full")

    monkeypatch.setattr("headrace.bench.report.files.write_requests", fails)
    with pytest.raises(OSError, match="disk full"):
        write_run(folder, run(), summarize(run()))
    assert (folder / REQUESTS).read_bytes() == before
    assert not [one for one in folder.iterdir() if one.name.endswith(".part")]


def test_a_page_is_written_whatever_it_says(tmp_path: Path) -> None:
    write_text(tmp_path / "new" / "report.html", "µ \ud800")
    assert (tmp_path / "new" / "report.html").read_bytes() == "µ ?".encode()


def test_requests_are_written_as_they_come() -> None:
    file = io.BytesIO()
    assert write_requests(file, iter(MADE.requests)) == 60
    assert file.getvalue().count(b"\n") == 60


def rows(*records: object, slo: str | None = None, name: str = "headrace") -> list[dict[str, str]]:
    made = run(*records)  # type: ignore[arg-type]
    parsed = None if slo is None else parse_slo(slo)
    lines = csv_lines(made.requests, DEFINITIONS[name], parsed)
    return list(csv.DictReader(io.StringIO(b"".join(lines).decode())))


def test_a_spreadsheet_has_a_line_for_each_request() -> None:
    good, bad, warm = rows(
        steady(3, 100, 40, start_ms=50, intended_ms=0, index=0),
        stream(end_ms=9, failure=Failure("http", "=cmd|' /C calc'!A0"), status=500, index=1),
        steady(3, 100, 40, index=2, measured=False),
        slo="ttft:500 tpot:50 ttft:p95<1ms",
    )
    assert good["sent_ttft_ms"] == "100.000000" and good["intended_ttft_ms"] == "150.000000"
    assert good["sent_tps_user_tokens_per_s"] == "25.000000"
    assert (good["good"], bad["good"], warm["good"]) == ("1", "0", "")
    assert bad["message"] == "'=cmd|' /C calc'!A0" and bad["sent_ttft_ms"] == ""
    assert bad["error"] == "http" and bad["status"] == "500"


def test_a_spreadsheet_under_another_definition() -> None:
    (row,) = rows(steady(3, 100, 40), name="vllm")
    assert float(row["sent_e2el_ms"]) == 180 and "sent_tps_user_tokens_per_s" not in row


def test_a_spreadsheet_takes_any_text() -> None:
    (row,) = rows(stream(sent_ms=None, failure=Failure("protocol", 'a,"b"\nc \ud800')))
    assert row["message"] == 'a,"b"\nc ?'
