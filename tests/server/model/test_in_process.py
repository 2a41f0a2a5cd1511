"""What `LLM` and the server have in common is the same in both."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import pytest

from headrace.config import EngineConfig, ServerConfig
from headrace.engine.params import SamplingParams
from headrace.llm import LLM
from headrace.server.lifecycle.load import load_text
from tests.tiny import write_tiny_gguf, write_tiny_hf

MESSAGES = [{"role": "user", "content": "hi <|im_end|> there"}]


def test_the_chat_template_is_the_same(tmp_path: Path) -> None:
    path = str(write_tiny_gguf(tmp_path))
    text = load_text(EngineConfig(model=path), ServerConfig())
    assert text.template is not None
    segments = text.template.render_segments(MESSAGES, control_tokens=text.tokenizer.control_tokens)
    ids = LLM(path, backend="reference", num_gpu_blocks_override=8).encode_chat(MESSAGES)
    assert ids == text.tokenizer.encode_segments(segments)


@pytest.mark.parametrize(("prompt", "warned"), [("<|bos|>a", True), ("a", False)])
def test_two_bos_tokens_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, prompt: str, warned: bool
) -> None:
    folder = write_tiny_hf(tmp_path)
    config = folder / "tokenizer_config.json"
    fields = msgspec.json.decode(config.read_bytes())
    config.write_bytes(msgspec.json.encode({**fields, "add_bos_token": True}))
    llm = LLM(str(folder), backend="reference", num_gpu_blocks_override=8)
    with caplog.at_level(logging.WARNING):
        llm.generate(prompt, SamplingParams(max_tokens=1))
    assert any("two beginning-of-text" in message for message in caplog.messages) is warned


def test_top_k_of_minus_one_and_zero_and_top_p_of_zero(tmp_path: Path) -> None:
    llm = LLM(str(write_tiny_gguf(tmp_path)), backend="reference", num_gpu_blocks_override=8)

    def ids(**params: float) -> tuple[int, ...]:
        chosen = SamplingParams(max_tokens=8, seed=3, ignore_eos=True, **params)  # type: ignore[arg-type]
        return llm.generate("abc", chosen)[0].token_ids

    assert ids(top_k=-1) == ids(top_k=0) != ids(top_k=1)
    assert ids(top_p=0) == ids(top_k=1) == ids(temperature=0)
