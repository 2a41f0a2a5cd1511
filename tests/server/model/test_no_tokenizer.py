"""A model without a tokenizer: token ids in and out; whatever needs text is refused by name."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace import LLM, SamplingParams
from headrace.config import EngineConfig, ServerConfig
from headrace.errors import RequestError
from headrace.offline.results import GenerationResult
from headrace.server.lifecycle import announce
from headrace.server.lifecycle.load import load_text
from headrace.server.state import ServerState
from headrace.text.no_tokenizer import NoTokenizer
from tests.server.conftest import Running, served_model
from tests.server.connections.test_wire import error_of
from tests.server.mock_engine import MockEngine, says
from tests.tiny import EOS, IM_END, write_tiny_gguf, write_tiny_hf

Start = Callable[..., Running]
IDS = list(b"ab")
GREEDY = SamplingParams(
    temperature=0, max_tokens=8, ignore_eos=True, allowed_token_ids=tuple(range(256))
)


@pytest.fixture
def server(start: Start) -> Running:
    return start(MockEngine(says("hi")), tokenizer=NoTokenizer((EOS,)))


def test_ids_are_continued_by_ids(server: Running) -> None:
    reply = server.complete(prompt=IDS, max_tokens=4, return_token_ids=True, logprobs=1, echo=True)
    [choice] = reply["choices"]
    assert choice["text"] == ""
    assert choice["prompt_token_ids"] == IDS
    assert choice["token_ids"] == [*b"hi", EOS]
    names = [f"token_id:{token_id}" for token_id in (*IDS, *b"hi", EOS)]
    assert choice["logprobs"]["tokens"] == names
    assert reply["usage"]["completion_tokens"] == 3


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/completions", {"prompt": "text"}, "prompt"),
        ("/v1/completions", {"prompt": IDS, "stop": "x"}, "stop"),
        ("/v1/completions", {"prompt": IDS, "stop": ["x"], "stream": True}, "stop"),
        ("/v1/completions", {"prompt": IDS, "bad_words": ["x"]}, "bad_words[0]"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}, "messages"),
        ("/tokenize", {"prompt": "text"}, "prompt"),
        ("/detokenize", {"tokens": IDS}, "tokens"),
    ],
)
def test_what_needs_text_is_refused(
    server: Running, path: str, body: dict[str, Any], param: str | None
) -> None:
    error = error_of(server.post(path, body), 400)
    assert (error["code"], error["param"]) == ("no_tokenizer", param)
    assert "this model has no tokenizer" in error["message"]
    assert server.engine.submitted == []
    assert server.state.admission.num_queued == 0


def test_the_log_says_so_at_start(caplog: pytest.LogCaptureFixture) -> None:
    state = ServerState(config=ServerConfig())
    left_out = "vision_tower (2 tensors)"
    model = served_model(MockEngine(says("x")), tokenizer=NoTokenizer(), left_out=left_out)
    state.set_model(model)
    with caplog.at_level(logging.WARNING):
        announce.announce(state, "http://127.0.0.1:1", announce.Times(1.0, {}, {}), as_json=False)
    state.close()
    assert f"left out of the model: {left_out}; text alone is read" in caplog.text
    assert "the model has no tokenizer: prompts are token ids" in caplog.text


def without_tokenizer(folder: Path) -> Path:
    path = write_tiny_hf(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (path / name).unlink()
    return path


def test_a_folder_without_a_tokenizer_is_served(tmp_path: Path) -> None:
    text = load_text(EngineConfig(model=str(without_tokenizer(tmp_path))), ServerConfig())
    assert isinstance(text.tokenizer, NoTokenizer)
    assert text.tokenizer.eos_token_ids == (EOS, IM_END)
    assert text.names == ("tiny-llama-f32",)
    assert text.template is None


def test_llm_gives_the_ids_that_it_gives_with_a_tokenizer(tmp_path: Path) -> None:
    """Only ids that the tokenizer has are allowed: without one, those of padding may be drawn."""

    def continued(path: Path) -> tuple[LLM, GenerationResult]:
        llm = LLM(path, backend="reference", num_gpu_blocks_override=64)
        return llm, llm.generate([IDS], GREEDY)[0]

    _, expected = continued(write_tiny_gguf(tmp_path / "whole"))
    llm, result = continued(without_tokenizer(tmp_path))
    assert result.token_ids == expected.token_ids
    assert (result.text, result.prompt_token_ids) == ("", tuple(IDS))
    assert not llm.has_chat_template
    with pytest.raises(RequestError, match="this model has no tokenizer, so a text has no token"):
        llm.generate("ab", GREEDY)
    with pytest.raises(RequestError, match="stop: this model has no tokenizer"):
        llm.generate([IDS], GREEDY, stop="x")
    # The second time all but the last token are found in the cache.
    assert llm.generate([IDS], GREEDY) == [replace(result, cached_tokens=len(IDS) - 1)]
