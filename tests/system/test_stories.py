"""A model somebody else trained continues its prompts exactly as recorded, over HTTP, from GGUF."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.process


@pytest.mark.parametrize("flags", [(), ("--cpu-level", "portable"), ("--block-size", "16")])
def test_recorded_greedy_tokens(
    serve: Callable[..., Any], shared_assets: Path, flags: tuple[str, ...]
) -> None:
    folder = shared_assets / "models" / "stories260K"
    cases = json.loads((folder / "reference-greedy.json").read_text())["stories260K"]
    assert len(cases) == 5
    server = serve(folder / "stories260K.gguf", *flags)
    for case in cases:
        for prompt in (case["prompt_ids"], case["prompt"]):
            body = {
                "model": server.model,
                "prompt": prompt,
                "max_tokens": len(case["ids"]),
                "temperature": 0,
                "ignore_eos": True,
                "return_token_ids": True,
            }
            reply = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
            assert reply.status_code == 200, reply.text
            choice = reply.json()["choices"][0]
            assert choice["prompt_token_ids"] == case["prompt_ids"]
            assert choice["token_ids"] == case["ids"]
