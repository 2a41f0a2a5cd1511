"""docs/errors.md: every command ends with the status that the table of statuses says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.cli import main as main_module
from tests.docs.pages import page, part, rows

MAIN = [sys.executable, "-m", "headrace"]
FORM = ("generate", "-p", "x", "--threads", "1", "--regex", "ab{9}c")


def _gateway(tmp_path: Path) -> list[str]:
    path = tmp_path / "gateway.yaml"
    path.write_text("guardrails: {ids: {kind: regex, patterns: ['x+'], action: block}}\n")
    return ["--config", str(path)]


def _bad_settings(tmp_path: Path) -> list[str]:
    path = tmp_path / "settings.yaml"
    path.write_text("max_num_seqs: 0\n", encoding="utf-8")
    return ["serve", "--config", str(path)]


# By command and status: what is typed.
CASES: dict[tuple[str, int], list[Callable[[Path], list[str]]]] = {
    ("any", 0): [lambda _: ["--version"], lambda _: [*FORM]],
    ("any", 1): [
        lambda path: ["show", str(path / "absent.gguf")],
        lambda path: ["generate", "-p", "x", "--schema", str(path / "absent.json")],
        lambda _: ["generate", "-p", "x", "--max-model-len", "9999999"],
        lambda _: ["chat", "--url", "http://127.0.0.1:1"],
        _bad_settings,
    ],
    ("any", 2): [
        lambda _: ["sevre"],
        lambda _: ["serve", "--nope"],
        lambda _: ["pull"],
        lambda _: ["serve", "--port", "x"],
        lambda _: ["serve", "--port", "99999"],
        lambda _: ["serve", "--scheduling-policy", "x"],
        lambda path: [*_bad_settings(path), "--max-num-batched-tokens", "0"],
        lambda _: ["generate", "-p", "x", "--max-num-seqs", "0"],
        lambda _: ["generate", "-p", "x", "--temperature", "-1"],
        lambda _: ["generate", "-p", "x", "--thinking-token-budget", "-2"],
        lambda _: ["generate", "-p", "x", "--regex", "a", "--choice", "a"],
        lambda _: ["chat", "--reasoning-effort", "banana"],
    ],
    ("generate", 3): [lambda _: [*FORM, "--max-tokens", "2"]],
    ("ps", 1): [lambda _: ["ps", "http://127.0.0.1:1"]],
    ("plan lint", 1): [lambda _: ["plan", "lint", "--", "vllm", "serve", "m", "--enforce-eager"]],
    ("plan lint", 2): [lambda path: ["plan", "lint", str(path / "absent")]],
    ("gateway check", 1): [
        lambda path: ["gateway", "check", "--config", str(path / "absent.yaml")]
    ],
    ("gateway guard-test", 1): [lambda path: ["gateway", "guard-test", *_gateway(path), "xx"]],
    ("bench compare", 2): [lambda path: ["bench", "compare", str(path), str(path)]],
}
# Of tests of their own: processes that a signal ends, and `tests/cli/bench/test_compare.py`.
ELSEWHERE = {
    ("any", 130),
    ("serve", 0),
    ("gateway", 0),
    ("bench mock", 0),
    ("bench compare", 1),
}


def documented() -> set[tuple[str, int]]:
    return {
        (command.strip("` "), int(status))
        for commands, status, when in rows(part(page("errors.md"), "statuses"))
        for command in commands.split(",")
        if when
    }


def status_of(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    # What else it does to a process of its own is left alone in this one.
    monkeypatch.setattr(main_module, "leave_quietly", lambda: None)
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    monkeypatch.setattr(sys, "argv", ["headrace", *arguments])
    with pytest.raises(SystemExit) as ended:
        main_module.main()
    code = ended.value.code
    assert code is None or isinstance(code, int)
    return code or 0


def test_every_row_has_a_case() -> None:
    assert documented() == {*CASES, *ELSEWHERE}


@pytest.mark.parametrize(
    ("status", "case"),
    [(status, case) for (_, status), cases in CASES.items() for case in cases],
    ids=[
        f"{name}-{status}-{at}"
        for (name, status), cases in CASES.items()
        for at in range(len(cases))
    ],
)
def test_a_command_ends_as_the_table_says(
    status: int,
    case: Callable[[Path], list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert status_of(case(tmp_path), monkeypatch) == status
    said = capsys.readouterr().err
    assert "Traceback" not in said
    if case in CASES["any", 1]:
        assert said.startswith("headrace: ") and said.count("\n") == 1
    if case in CASES["any", 2]:
        assert said.splitlines()[-1].startswith("Error: ")


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "ready", "number", "status"),
    [
        (["generate", "-p", "x", "--min-tokens", "1900"], "x", signal.SIGINT, 130),
        (["generate", "-p", "x", "--min-tokens", "1900"], "x", signal.SIGTERM, -signal.SIGTERM),
        (["serve", "--port", "0"], "headrace serves", signal.SIGINT, 0),
        (["serve", "--port", "0"], "headrace serves", signal.SIGTERM, 0),
        (["bench", "mock", "--port", "0"], "http", signal.SIGINT, 0),
        (["bench", "mock", "--port", "0"], "http", signal.SIGTERM, 0),
    ],
)
def test_a_signal_ends_a_command_as_the_table_says(
    arguments: list[str], ready: str, number: int, status: int
) -> None:
    environ = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [*MAIN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
    ) as process:
        assert process.stdout is not None
        assert ready in process.stdout.readline()
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
    assert process.returncode == status
    assert "Traceback" not in said
