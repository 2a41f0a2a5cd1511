"""`serve` says in its log what it does with memory, and at once why a size cannot be had."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.server.serve_process import spawn


@pytest.mark.process
def test_the_arithmetic_is_logged_once_the_model_is_there(model: Path) -> None:
    process = spawn(model, num_gpu_blocks_override=64).wait_ready()
    code, log = process.end()
    assert code == 0
    assert re.search(r"memory: [\d,.]+ MiB available .* of weights \(\w+\)", log)
    assert "(--num-gpu-blocks-override 64): 64 blocks of 32 tokens" in log
    assert re.search(r"longest request: 512 tokens.* at once fit 4 of that length", log)


@pytest.mark.process
def test_values_that_would_fit_are_in_the_error(model: Path) -> None:
    code, log = spawn(model, num_gpu_blocks_override=1, max_model_len=400).wait()
    assert code != 0
    assert "Use --max-model-len 32 or --num-gpu-blocks-override 13." in log
