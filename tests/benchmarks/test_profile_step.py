"""A profile of steps finds the operations that they are made of."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.process
def test_a_decode_step_has_its_products_and_attention() -> None:
    """Steps that are repeated call no operation, so the clocked ones have to be computed anew."""
    command = [
        sys.executable,
        "benchmarks/profile_step.py",
        "--requests",
        "2",
        "--prompts",
        "--steps",
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [*command, "3", "--json"], cwd=ROOT, env=environment, capture_output=True, timeout=120
    )
    assert run.returncode == 0, run.stderr.decode()
    (column,) = json.loads(run.stdout)
    operations = column["operations"]
    assert operations["linear"] > 0
    assert operations["paged_attention"] > 0
