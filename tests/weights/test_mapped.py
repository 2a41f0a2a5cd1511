"""Mapped files: their pages can be released, and hold the same afterwards."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest

from headrace.weights.files.mapped import file_of, map_file, release


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


def test_a_view_is_read_from_its_file_as_well_until_it_goes(tmp_path: Path) -> None:
    np.arange(10_000, dtype=np.uint16).tofile(tmp_path / "file")
    view = map_file(tmp_path / "file")[100:].reshape(-1, 100)[3:5]
    found = file_of(view)
    assert found is not None
    descriptor, place = found
    assert os.pread(descriptor, view.nbytes, place) == view.tobytes()
    assert file_of(view[:, ::2]) is None
    del view
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_an_array_of_no_file_has_none() -> None:
    assert file_of(np.zeros(10, np.uint8)) is None
