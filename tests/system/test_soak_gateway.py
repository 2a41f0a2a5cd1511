"""Twenty seconds of what `make soak-gateway` does for twenty minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.soak_gateway.soak import Length, soak

pytestmark = pytest.mark.soak

LENGTH = Length(hours=3, seconds=15.0, per_hour=200, workers=1)


async def test_traffic_of_every_kind_leaves_nothing_behind_and_is_billed_right(
    tmp_path: Path,
) -> None:
    told: list[str] = []
    report = await soak(LENGTH, 7, tmp_path, told.append)
    assert not report.problems, report.problems[:3]
    counts = report.counts
    assert counts["requests"] > 200 and counts["bills compared"] > 100
    for name in ("leaves in the middle", "wrong key", "status 429", "provider: dies"):
        assert counts[name] > 0, name
    assert len(told) == LENGTH.hours
