"""Failures that an engine survives, and so hides, fail the test they happen in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from headrace.engine.core import EngineCore


@dataclass
class Survived:
    """What the engines of a test may count; a test that provokes failures says how many."""

    failed_steps: int = 0
    kv_accounting_errors: int = 0


@pytest.fixture(autouse=True)
def survived(monkeypatch: pytest.MonkeyPatch) -> Iterator[Survived]:
    """Failures expected of all engines the test makes in this process, together."""
    cores: list[EngineCore] = []
    make = EngineCore.__init__

    def recorded(self: EngineCore, *args: object, **settings: object) -> None:
        make(self, *args, **settings)  # type: ignore[arg-type]
        cores.append(self)

    monkeypatch.setattr(EngineCore, "__init__", recorded)
    expected = Survived()
    yield expected
    stats = [core.stats() for core in cores]
    counted = Survived(
        sum(each.failed_steps for each in stats), sum(each.kv_accounting_errors for each in stats)
    )
    assert counted == expected
