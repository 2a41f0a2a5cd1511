"""How far an engine is while it loads: what the parent is told, and how often."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.config.settings import EngineConfig
from headrace.engine.messages import FromCore, Loading
from headrace.engine.process.__main__ import PROGRESS_EVERY_S, LoadingReport
from headrace.engine.process.client import EngineClient
from tests.tiny import write_tiny_gguf


def test_progress_is_told_at_most_every_so_often_and_phases_at_once() -> None:
    now_s = 100.0
    sent: list[FromCore] = []
    report = LoadingReport(sent.extend, lambda: now_s)
    report.phase("open")
    report.phase("weights")
    report.progress(1, 10)
    assert sent == [Loading("open"), Loading("weights")]
    now_s += PROGRESS_EVERY_S
    report.progress(2, 10)
    report.progress(3, 10)
    assert sent[2:] == [Loading("weights", 2, 10)]
    now_s += PROGRESS_EVERY_S / 2
    report.progress(10, 10)
    report.phase("warm_up")
    assert sent[3:] == [Loading("warm_up", 10, 10)]


@pytest.mark.parametrize(("at", "share"), [(Loading(), 0), (Loading("weights", 1, 4), 0.25)])
def test_the_share(at: Loading, share: float) -> None:
    assert at.progress == share


async def test_a_client_hears_of_loading_and_has_figures_at_once(tmp_path: Path) -> None:
    heard: list[Loading] = []
    config = EngineConfig(
        model=str(write_tiny_gguf(tmp_path)), backend="reference", num_gpu_blocks_override=64
    )
    client = await EngineClient.start(config, on_loading=heard.append)
    try:
        assert [at.phase for at in heard if at.phase in client.info.phases_s]
        phases = list(dict.fromkeys(at.phase for at in heard))
        assert phases == ["open", "backend", "weights", "kv_cache", "warm_up"]
        assert heard[-1].progress == 1
        assert client.stats.blocks_total == client.stats.blocks_free == 64
        assert list(client.info.phases_s)[:2] == ["spawn", "import"]
    finally:
        await client.close()
