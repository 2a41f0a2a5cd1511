"""The share of the read bandwidth that products of one row reach: every kind can be measured."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest

from benchmarks import storage_kinds
from benchmarks.storage_kinds import Recording, kind_names, main


@pytest.mark.parametrize("kind", kind_names())
def test_a_kind_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Whatever else runs on the machine."""
    monkeypatch.setattr(storage_kinds, "OTHERS", math.inf)
    monkeypatch.setattr(storage_kinds, "SECONDS", 0.0)
    out = tmp_path / "shares.json"
    main(["--out", str(out), "--kind", kind, "--megabytes", "1", "--threads", "1"])
    recording = msgspec.json.decode(out.read_bytes(), type=Recording)
    (share,) = recording.kinds
    assert share.kind == kind and share.rounds == storage_kinds.LEAST_ROUNDS
    assert recording.command.endswith(f"--kind {kind} --megabytes 1 --threads 1")
    assert share.held_bytes > 0 and 1 <= share.bits_per_weight <= 65
    assert share.product_gb_s > 0 and share.read_gb_s > 0 and share.share > 0
