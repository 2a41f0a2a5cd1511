"""docs/offline.md: its programs run, and its tables name what there is."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from headrace import LLM, AsyncLLM
from headrace.cli.chat.commands import COMMANDS
from headrace.offline.progress import GenerationProgress
from headrace.offline.results import GenerationResult
from tests.tiny import write_tiny_gguf

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "offline.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.process
@pytest.mark.parametrize("program", PROGRAMS, ids=["LLM", "AsyncLLM", "structured", "tools"])
def test_the_programs_run(program: str, tmp_path: Path) -> None:
    model = write_tiny_gguf(tmp_path)
    path = tmp_path / "program.py"
    program = program.replace("model.gguf", str(model)).replace("max_model_len=4096", "threads=1")
    path.write_text(program)
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_every_argument_has_a_row() -> None:
    rows = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    for engine in (LLM, AsyncLLM):
        named = set(inspect.signature(engine.generate).parameters) - {"self", "prompts"}
        assert set(inspect.signature(engine.stream).parameters) - {"self", "prompt"} < named
        chat, streamed = (
            set(inspect.signature(method).parameters) - {"self", "messages", "variables"}
            for method in (engine.chat, engine.stream_chat)
        )
        assert rows == named | chat
        assert streamed == chat - {"n"}


def test_both_take_the_same_arguments() -> None:
    for name in ("generate", "chat", "stream", "stream_chat", "encode_chat"):
        in_process, beside = (
            {
                argument.name: argument.default
                for argument in inspect.signature(getattr(engine, name)).parameters.values()
                if argument.name != "progress"
            }
            for engine in (LLM, AsyncLLM)
        )
        assert in_process == beside


def test_every_field_and_command_is_named() -> None:
    named = [one.name for one in (*fields(GenerationResult), *fields(GenerationProgress))]
    named += [name for name, of in vars(GenerationResult).items() if isinstance(of, property)]
    assert [name for name in named if f"`{name}`" not in PAGE] == []
    rows = re.findall(r"^\| (`/.*?) \|", PAGE, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`/([a-z]+)", row)} == set(COMMANDS)
