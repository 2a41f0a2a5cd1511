"""Grammars made to do harm end in an error or in an answer of bounded time and memory."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.structured.hostile import CASES

REPOSITORY = Path(__file__).parents[2]
MOST_COMPILE_S = 3.0
"""CPU of one grammar; several times what each took (0.6 s at most), for slow machines."""
MOST_MASK_S = 0.5
MOST_MIB = 700
_REFUSED_GROUPS = ("a file", "a reference", "a schema", "a lenient", "half", "a number beyond")
MUST_BE_REFUSED = {name for name in CASES if name.startswith(_REFUSED_GROUPS)} | {
    "10 MB of values", "2^31 repeats of a rule", "a rule that is itself",
    "bytes that are not UTF-8", "deep", "not a number", "options",
    "patterns that have to match at once", "references in a circle", "remainders",
    "remainders that meet", "rules in a circle", "one long choice", "one long constant",
    "a long repeat", "10,000 constants", "lists of pairs of lists",
    "a tag of 1,990 repeats", "a tag of 400 lists of constants",
}  # fmt: skip


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))


@pytest.mark.process
def test_a_hostile_grammar_is_refused_or_bounded_in_time_and_memory() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.structured.hostile", *CASES],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=300, preexec_fn=_limited,
    )  # fmt: skip
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    done = {line["name"] for line in lines}
    assert run.returncode == 0, f"{run.stderr[-2000:]} after {len(done)} of {len(CASES)}"
    assert done == CASES.keys()
    slow = [
        line for line in lines if line["compile_s"] > MOST_COMPILE_S or line["mask_s"] > MOST_MASK_S
    ]
    assert slow == []
    assert max(line["peak_mib"] for line in lines) < MOST_MIB
    refused = {line["name"] for line in lines if line["ended"].startswith("refused")}
    assert refused >= MUST_BE_REFUSED, sorted(MUST_BE_REFUSED - refused)
