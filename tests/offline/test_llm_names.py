"""LLM takes names of models as commands do."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from headrace import LLM, SamplingParams
from headrace.errors import FetchError
from tests.tiny import write_tiny_hf
from tests.weights.store.mock_hub import running_hub

GREEDY = SamplingParams(temperature=0, max_tokens=6)


def test_a_hub_id_is_fetched_once_and_a_path_object_is_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_tiny_hf(tmp_path / "made")
    with running_hub() as hub:
        hub.add_folder("org/tiny", folder)
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        with pytest.raises(FetchError, match="headrace pull org/tiny"):
            LLM("org/tiny", threads=1, offline=True)
        assert hub.requests == []
        with caplog.at_level(logging.INFO, "headrace.llm"):
            fetched = LLM("org/tiny", threads=1)
    assert "fetching model.safetensors (5 of 5, " in caplog.text
    [expected] = LLM(folder, threads=1).generate("ab", GREEDY)
    [result] = fetched.generate("ab", GREEDY)
    assert result.token_ids == expected.token_ids
    monkeypatch.chdir(folder.parent.parent)
    relative = folder.relative_to(Path.cwd())
    [again] = LLM(relative, threads=1, offline=True).generate("ab", GREEDY)
    assert again.token_ids == expected.token_ids
