"""A few seconds of what `make soak` does for ten minutes: streams of every kind, too small a pool.

What survives is bit-identical to running alone; memory, file handles and tasks stay flat.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.soak.__main__ import CODECS
from tools.soak.soak import Length, soak

pytestmark = pytest.mark.soak

LENGTH = Length(seconds=4, round_s=2, streams=64, check=15)


# The moment below is of Q8_0.
@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "Q8_0"])
async def test_what_survives_is_what_it_would_be_alone(codec: str, tmp_path: Path) -> None:
    told: list[str] = []
    report = await soak(codec, LENGTH, 7, tmp_path, told.append)
    assert not report.problems, report.problems[:3]
    counts = report.counts
    assert counts["checked"] >= LENGTH.check
    for fate in ("finish", "cancel", "leave", "timeout"):
        assert counts[fate] > 0, fate
    assert counts["requests"] > LENGTH.streams
    assert told


@pytest.mark.smoke
async def test_a_moment_of_it(tmp_path: Path) -> None:
    report = await soak(
        "Q8_0", Length(seconds=1, round_s=1, streams=64, check=3), 7, tmp_path, print
    )
    assert not report.problems, report.problems[:3]
    assert report.counts["checked"] >= 3
