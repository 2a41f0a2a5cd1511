"""The pytest plugin that is loaded beside llama.cpp's tests: what it changes, and what it notes.

Three things differ from a run of their own: presets are not downloaded first, the texts that a
random stream gave are not compared (`match_regex`; headrace draws other numbers from a seed), and
a package that only downloads is replaced where it is not installed.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest

# The environment variable that names the file into which outcomes are written, a line each.
OUTCOMES = "TOUR_OUTCOMES"
MAX_REASON_CHARACTERS = 300


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Replace what would reach the network, and the comparison of sampled texts."""
    sys.path.insert(0, str(Path.cwd()))
    for name in ("wget", "aiohttp"):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            sys.modules[name] = types.ModuleType(name)
    utils: Any = importlib.import_module("utils")
    utils.ServerPreset.load_all = staticmethod(lambda: None)
    utils.match_regex = lambda regex, text: isinstance(text, str)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a test's outcome, with the line that failed."""
    if report.when != "call" and report.outcome == "passed":
        return
    if report.when == "teardown":
        return
    reason = ""
    if report.outcome != "passed":
        crash = getattr(report.longrepr, "reprcrash", None)
        text = crash.message if crash is not None else str(report.longrepr)
        if report.outcome == "failed":
            text = " | ".join([*text.splitlines()[:3], *_causes(report)])
        reason = text[:MAX_REASON_CHARACTERS]
    line = {"test": report.nodeid, "outcome": report.outcome, "reason": reason}
    with Path(os.environ[OUTCOMES]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _causes(report: pytest.TestReport) -> list[str]:
    """The launcher's own refusal and the last error of a reply, where the output shows them."""
    lines = f"{report.capstdout}\n{report.capstderr}".splitlines()
    found = [line.strip() for line in lines if '"message":' in line or "unavailable: " in line]
    # A server that starts answers with these.
    starting = ("is loading", "is not up yet")
    return [line for line in found if not any(text in line for text in starting)][-1:]
