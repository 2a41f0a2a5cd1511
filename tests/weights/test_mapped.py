"""Mapped files: their pages can be released, and hold the same afterwards."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headrace.weights.files.mapped import map_file, release


def _resident_kib() -> int:
    for line in Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1])
    raise AssertionError("no Rss in smaps_rollup")


def test_pages_that_are_released_are_not_this_processs_memory_and_read_the_same(
    tmp_path: Path,
) -> None:
    values = np.arange(4 << 20, dtype=np.uint32)
    values.tofile(tmp_path / "file")
    view = map_file(tmp_path / "file")[8:].reshape(-1, 8)
    before = int(view.sum(dtype=np.uint64))
    held = _resident_kib()
    release(view)
    assert held - _resident_kib() > 12 << 10
    assert int(view.sum(dtype=np.uint64)) == before


def test_other_arrays_stay_as_they_are() -> None:
    array = np.arange(100, dtype=np.uint8)
    release(array[10:20])
    assert array[15] == 15
