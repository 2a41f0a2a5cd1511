"""The models that agents talk to, and of each a chat template that keeps thoughts and one that
strips them once the user speaks again.

Published templates strip them; they keep them with one condition taken out. That of headrace-moe
keeps them, and strips them with one put in.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from benchmarks.agents.recorded import Lengths
from benchmarks.shaped_model import tokenizer
from headrace.weights.conversion.to_gguf import write_gguf
from headrace.weights.open import open_checkpoint
from tests.tiny import tiny_checkpoint

ROOT = Path(__file__).resolve().parents[2]
CONTEXT = 16384
VOCABULARY = 151936
LONG = Lengths(system_characters=4000, tools=4, text_characters=1200, turns=8)
SHORT = Lengths(system_characters=240, tools=1, text_characters=110, turns=8)
"""For a context of 2,048 tokens."""
QWEN3_ADDED = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>",
               "</think>")  # fmt: skip
HARMONY_ADDED = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>",
                 "<|return|>", "<|call|>")  # fmt: skip

_LAST_USER = (
    "{%- set last = namespace(user=-1) -%}{%- for message in messages -%}"
    "{%- if message.role == 'user' -%}{%- set last.user = loop.index0 -%}{%- endif -%}"
    "{%- endfor -%}"
)


class AgentModel(NamedTuple):
    """A model and its templates."""

    path: Path
    templates: dict[str, Path]
    """Of "kept" and "stripped"."""
    lengths: Lengths
    """What of a conversation its context holds."""
    context: int
    one_text: bool = False
    """As of `read_conversation`."""


def agent_model(name: str, assets: Path, folder: Path) -> AgentModel:
    """Write one of MODELS, or its templates alone, into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    return MODELS[name](assets, folder)


def _qwen3(assets: Path, folder: Path) -> AgentModel:
    path = folder / "qwen3.gguf"
    if not path.is_file():
        maker = str(ROOT / "benchmarks" / "shaped_model.py")
        command = [sys.executable, maker, str(path), "--shape", "small-152k", "--untied"]
        command += ["--vocabulary", str(assets / "tokenizers/qwen2"), "--added", *QWEN3_ADDED]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    published = _template(assets, "Qwen-Qwen3-0.6B")
    kept = _changed(published, "loop.index0 > ns.last_query_index", "true")
    return AgentModel(path, _written(folder, "qwen3", kept, published), LONG, CONTEXT)


def _gpt_oss(assets: Path, folder: Path) -> AgentModel:
    path = folder / "gpt-oss.gguf"
    if not path.is_file():
        checkpoint = tiny_checkpoint(
            "gpt_oss", sliding_window=128, vocab=VOCABULARY, max_positions=CONTEXT, layers=4
        )
        entries = tokenizer(VOCABULARY, assets / "tokenizers/qwen2", HARMONY_ADDED)
        write_gguf(checkpoint, path, "Q8_0", metadata={"general.name": "tiny gpt-oss", **entries})
    published = _template(assets, "openai-gpt-oss-120b")
    kept = _changed(published, " and not future_final_message.found", "")
    final = '{{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|end|>" }}'
    thoughts = (
        "{%- if message.thinking %}"
        '{{- "<|start|>assistant<|channel|>analysis<|message|>" + message.thinking + "<|end|>" }}'
        "{%- endif %}"
    )
    kept = _changed(kept, final, thoughts + final)
    return AgentModel(path, _written(folder, "gpt-oss", kept, published), LONG, CONTEXT, True)


def _moe(assets: Path, folder: Path) -> AgentModel:
    path = ROOT / "models/headrace-moe/headrace-moe-q8_0.gguf"
    kept = open_checkpoint(path).chat_templates["default"]
    stripped = _LAST_USER + _changed(
        kept,
        "{%- if message.reasoning_content -%}",
        "{%- if message.reasoning_content and start + loop.index0 > last.user -%}",
    )
    return AgentModel(path, _written(folder, "headrace-moe", kept, stripped), SHORT, 2048)


MODELS = {"qwen3": _qwen3, "gpt-oss": _gpt_oss, "headrace-moe": _moe}


def _template(assets: Path, name: str) -> str:
    return (assets / "chat-templates/llama.cpp" / f"{name}.jinja").read_text(encoding="utf-8")


def _changed(template: str, text: str, replacement: str) -> str:
    if text not in template:
        raise SystemExit(f"the chat template has no {text!r}: another version than expected?")
    return template.replace(text, replacement)


def _written(folder: Path, model: str, kept: str, stripped: str) -> dict[str, Path]:
    paths = {}
    for name, text in (("kept", kept), ("stripped", stripped)):
        paths[name] = folder / f"{model}-{name}.jinja"
        paths[name].write_text(text, encoding="utf-8")
    return paths
