"""Backends by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from headrace.errors import ConfigError
from headrace.ops import make_ops


def test_reference_by_name() -> None:
    ops = make_ops("reference", cpu_level="avx512", threads=3)
    assert (ops.name, ops.level, ops.num_threads) == ("reference", "reference", 1)


def test_unknown_backends_are_refused() -> None:
    with pytest.raises(ConfigError, match="'tpu' is unknown; choose one of cpu, reference"):
        make_ops("tpu")


def test_importing_ops_loads_no_backend_and_no_torch() -> None:
    check = (
        "import sys, headrace.ops, headrace.models;"
        "bad = [m for m in sys.modules if m.startswith(('torch', 'headrace.ops.cpu', "
        "'headrace.ops.reference'))];"
        "assert not bad, bad"
    )
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
