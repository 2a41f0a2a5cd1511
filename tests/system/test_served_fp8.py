"""Folders of FP8 over HTTP: the tokens and log probabilities of the same weights as plain numbers.

With scales that are powers of two every weight is a bfloat16, and both folders run one arithmetic:
the answers are equal bit for bit. It holds at every level but avx512_bf16, which adds BF16's
products in an order of its own. With any other scales the weights take float32, whose products do
not round activations to bfloat16 as FP8's do: the twin in F32 is then near
(tests/models/test_fp8_folders.py), and what is equal is the server and the library.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace import LLM, SamplingParams
from headrace.ops.cpu import CpuOps
from headrace.weights.codecs import BF16
from tests.models.fp8_folders import LAYOUTS, write_fp8
from tests.system.conftest import RunningServer

pytestmark = pytest.mark.process

WIDE = {"hidden": 192, "intermediate": 320, "layers": 2}
"""Two blocks of 128 in each dimension, the second one cut off."""
LEVEL = next(level for level in CpuOps.levels() if level != "avx512_bf16")
PROMPT, TOKENS = "the river runs by the mill", 24
Serve = Callable[..., RunningServer]


def answered(server: RunningServer) -> tuple[list[int], list[float]]:
    body: dict[str, Any] = {
        "model": server.model, "prompt": PROMPT, "temperature": 0, "max_tokens": TOKENS,
        "ignore_eos": True, "logprobs": 0, "return_token_ids": True,
    }  # fmt: skip
    reply = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
    assert reply.status_code == 200, reply.text
    [choice] = reply.json()["choices"]
    return choice["token_ids"], choice["logprobs"]["token_logprobs"]


def generated(folder: Path) -> tuple[list[int], list[float]]:
    llm = LLM(folder, backend="cpu", cpu_level=LEVEL, threads=1)
    params = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, logprobs=0)
    [result] = llm.generate([PROMPT], params, progress=False)
    assert result.logprobs is not None
    return list(result.token_ids), [token.logprob for token in result.logprobs]


@pytest.mark.parametrize("name", ["AutoFP8", "compressed channel", "block"])
def test_it_answers_as_its_dequantised_twin(name: str, tmp_path: Path, serve: Serve) -> None:
    """Of one matrix, of rows, and of blocks of 128 x 128."""
    made = write_fp8(tmp_path, "qwen3", LAYOUTS[name], powers=True, plain=BF16, **WIDE)
    served = answered(serve(made.fp8, "--cpu-level", LEVEL, "--threads", "2"))
    assert served == generated(made.plain)
    assert len(served[0]) == TOKENS and len(set(served[1])) > 1


def test_with_any_scales_it_answers_as_the_library(tmp_path: Path, serve: Serve) -> None:
    made = write_fp8(tmp_path, "qwen3", LAYOUTS["block"], **WIDE)
    served = answered(serve(made.fp8, "--cpu-level", LEVEL, "--threads", "2"))
    assert served == generated(made.fp8)
