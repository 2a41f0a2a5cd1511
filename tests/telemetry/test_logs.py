"""Log lines: one record is one line, whatever a client put into it."""

from __future__ import annotations

import io
import json
import logging
import socket
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.telemetry.call import CallRecord, as_current, name_call
from headrace.telemetry.logs import (
    CallFilter,
    LogFormat,
    configured_format,
    formatter,
    printable,
)

HOSTILE = "x\n2026-01-01T00:00:00.000Z INFO root: forged\r\x1b[2J\x00\u2028\u202e\ud800\x85"


class Log:
    """A logger of its own, in one of the formats."""

    def __init__(self, log_format: LogFormat) -> None:
        self.stream = io.StringIO()
        handler = logging.StreamHandler(self.stream)
        handler.setFormatter(formatter(log_format))
        handler.addFilter(CallFilter())
        self.logger = logging.Logger("a.logger", logging.DEBUG)
        self.logger.addHandler(handler)

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()

    def object(self) -> dict[str, object]:
        (line,) = self.lines
        loaded = json.loads(line)
        assert isinstance(loaded, dict)
        return loaded


def test_text_line() -> None:
    log = Log("text")
    with as_current(CallRecord("req-1", "/x", 0.0)):
        log.logger.warning("said %d", 7, extra={"fields": {"a": 1, "b": "two words", "c": None}})
    (line,) = log.lines
    time, rest = line.split(" ", 1)
    assert rest == 'WARNING a.logger: said 7 [request req-1] a=1 b="two words"'
    assert time.endswith("Z") and time[10] == "T" and len(time) == 24


def test_json_line() -> None:
    log = Log("json")
    with as_current(CallRecord("", "/x", 0.0)):
        name_call("req-1")
        log.logger.error("said %d", 7, extra={"fields": {"n": 1, "level": "x", "f": float("nan")}})
    line = log.object()
    time = line.pop("time")
    assert isinstance(time, str) and time.endswith("Z")
    assert line == {
        "level": "error",
        "logger": "a.logger",
        "message": "said 7",
        "request_id": "req-1",
        "n": 1,
        "level_": "x",
        "f": None,
    }


def test_outside_of_a_call_there_is_no_id() -> None:
    log = Log("json")
    name_call("nobody")
    log.logger.info("x")
    assert "request_id" not in log.object()


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_nothing_a_client_sends_makes_a_line(log_format: LogFormat) -> None:
    log = Log(log_format)
    with as_current(CallRecord(HOSTILE, "/x", 0.0)):
        log.logger.info("%s", HOSTILE, extra={"fields": {"id": HOSTILE, "list": [HOSTILE]}})
    (line,) = log.stream.getvalue().split("\n")[:-1]
    assert line.isprintable()
    assert line.startswith(("20", '{"time"'))
    if log_format == "json":
        assert json.loads(line)["message"] == HOSTILE


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_tracebacks_cannot_pass_for_lines(log_format: LogFormat) -> None:
    log = Log(log_format)
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        log.logger.exception("failed")
    first, *rest = log.stream.getvalue().split("\n")[:-1]
    assert "failed" in first
    if log_format == "json":
        assert not rest
        assert HOSTILE.splitlines()[0] in json.loads(first)["exception"]
    else:
        assert len(rest) > 3
        assert all(line.startswith("    ") and line.isprintable() for line in rest)


@given(st.text(st.characters(codec=None)))
def test_every_text_is_one_printable_line(text: str) -> None:
    assert printable(text).isprintable()
    if text.isprintable():
        assert printable(text) == text


def test_the_engine_logs_as_its_parent_does(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    assert configured_format() == "text"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter("json"))
    monkeypatch.setattr(root, "handlers", [handler])
    assert configured_format() == "json"


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_lines_of_the_engines_process(log_format: str) -> None:
    """Its config is garbage here, so it ends with a traceback in its log."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        number = str(theirs.fileno())
        arguments = ["--link-fd", number, "--started-s", "0"]
        done = subprocess.run(
            [sys.executable, "-m", "headrace.engine.process", *arguments],
            input=json.dumps({"config": {"model": 7}, "log_format": log_format}).encode(),
            capture_output=True,
            pass_fds=(theirs.fileno(),),
            check=False,
        )
    assert done.returncode == 1
    first, *rest = done.stderr.decode().splitlines()
    if log_format == "json":
        assert not rest
        line = json.loads(first)
        assert (line["level"], line["logger"]) == ("error", "headrace.engine")
        assert "Traceback" in line["exception"]
    else:
        assert " ERROR headrace.engine: " in first
        assert rest and all(line.startswith("    ") for line in rest)
