"""The limit of open files follows the number of connections."""

from __future__ import annotations

import logging
import resource

import pytest

from headrace.http.file_limit import OTHER_FILES, raise_file_limit


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "left", "room"),
    [
        (1024, 100_000, 4096, 4096 + OTHER_FILES, 4096),
        (1024, 2000, 4096, 2000, 2000 - OTHER_FILES),
        (64, 64, 4096, 64, 16),
        (64, 64, 10, 64, 10),
        (65_536, 100_000, 4096, None, 4096),
        (1024, resource.RLIM_INFINITY, 9000, 9000 + OTHER_FILES, 9000),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 9000, None, 9000),
    ],
)
def test_it_is_raised_as_far_as_allowed(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    soft: int,
    hard: int,
    wanted: int,
    left: int | None,
    room: int,
) -> None:
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: set_to.append(limits))
    with caplog.at_level(logging.WARNING):
        assert raise_file_limit(wanted) == room
    assert set_to == ([] if left is None else [(left, hard)])
    assert bool(caplog.records) is (left is not None and left < wanted + OTHER_FILES)


def test_a_system_that_refuses(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(which: int, limits: tuple[int, int]) -> None:
        raise ValueError("not that many")

    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 100_000))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    with caplog.at_level(logging.WARNING):
        raise_file_limit(1000)
    assert "may open only 256 files" in caplog.text
