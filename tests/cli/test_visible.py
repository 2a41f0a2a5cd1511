"""Names a stranger gave are printed as they are, and do nothing to a terminal."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import save_file

from headrace.cli.fetch_bar import fetch_bar
from headrace.cli.main import cli
from headrace.cli.visible import visible
from headrace.weights.store.fetch import FetchProgress

from .test_fetch_bar import _Stream


def test_only_what_steers_a_terminal_is_changed() -> None:
    assert visible("a\tb\nünï ☃") == "a\tb\nünï ☃"
    assert visible("\x1b[2Jx\r\x07\udcff") == r"\x1b[2Jx\r\x07\udcff"


@pytest.mark.parametrize("name", ["[/x]", "[red]y[/red]", "\x1b[31mz"])
def test_show_prints_any_name_of_a_tensor(tmp_path: Path, name: str) -> None:
    save_file({name: np.zeros(4, np.float32)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "\x1b[5m"}))
    arguments = ["show", str(tmp_path), "--tensors"]
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False, color=True)
    assert visible(name) in result.output
    assert r"\x1b[5m" in result.output
    assert "\x1b[5m" not in result.output


def test_show_takes_a_path_that_is_no_text(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    save_file({"a": np.zeros(4, np.float32)}, folder / "model.safetensors")
    (folder / "config.json").write_text("{}")
    for more in ([], ["--json"]):
        result = CliRunner().invoke(cli, ["show", str(folder), *more], catch_exceptions=False)
        assert "udcff" in result.output


def test_a_bar_shows_brackets_in_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = _Stream(terminal=True)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with fetch_bar() as show:
        show(FetchProgress("[/x].gguf", 1, 1, 10, "begun", 0, 0, 10))
        show(FetchProgress("[/x].gguf", 1, 1, 10, "done", 10, 10, 10))
    assert "[/x].gguf" in stream.getvalue()
