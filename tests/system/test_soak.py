"""Half a minute of what `make soak` does for ten: streams of every kind on too small a pool.

What survives is bit-identical to running alone; memory, file handles and tasks stay flat.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.soak.__main__ import CODECS
from tools.soak.soak import Length, soak

LENGTH = Length(seconds=7, round_s=3, streams=64, check=25)


@pytest.mark.parametrize("codec", CODECS)
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
