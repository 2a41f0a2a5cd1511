"""A file that is written appears whole under its name, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.atomic_file import atomic_file


def test_the_name_shows_the_old_content_until_the_new_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    path.write_bytes(b"old")
    with atomic_file(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_that_fails_leaves_the_old_content_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), atomic_file(path) as file:
        file.write(b"half of the n")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
