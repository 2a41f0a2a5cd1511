"""The arithmetic of memory in words, checked against what the figures say."""

from __future__ import annotations

import re

import msgspec
import pytest

from headrace.engine.memory.report import memory_report
from headrace.engine.messages import EngineInfo

INFO = EngineInfo(
    model_type="llama",
    vocab_size=1000,
    max_model_len=8192,
    block_size=32,
    num_blocks=1000,
    pool_tokens=32_000,
    kv_cache_dtype="bf16",
    backend="cpu",
    cpu_level="avx512",
    num_threads=4,
    weight_codec="Q8_0",
    weight_bytes=3 << 29,
    kv_bytes=1000 * 32 * 57_344,
    phases_s={},
    available_bytes=7 << 30,
    kv_budget="a quarter of 7,168 MiB available",
)


def test_the_arithmetic_is_there() -> None:
    assert memory_report(INFO) == [
        "memory: 7,168.0 MiB available when the KV cache was sized, beside 1,536.0 MiB of weights "
        "(Q8_0)",
        "KV cache: 1,750.0 MiB (a quarter of 7,168 MiB available): "
        "1,000 blocks of 32 tokens, 1,835,008 bytes each; a token costs 57,344 bytes in bf16",
        "longest request: 8,192 tokens, prompt and output; at once fit 3 of that length, "
        "31 of 1,000 tokens",
    ]


@pytest.mark.parametrize(
    ("max_model_len", "num_blocks", "pool_tokens", "longest", "counts"),
    [
        (8192, 100, 3200, "3,200", ["1", "3"]),
        (100, 1000, 32_000, "100", ["250"]),
        (1000, 1000, 32_000, "1,000", ["31"]),
        (8192, 64, 8192, "8,192", ["1", "2"]),  # windows: longer than its blocks
    ],
)
def test_requests_at_once(
    max_model_len: int, num_blocks: int, pool_tokens: int, longest: str, counts: list[str]
) -> None:
    info = msgspec.structs.replace(
        INFO,
        max_model_len=max_model_len,
        num_blocks=num_blocks,
        pool_tokens=pool_tokens,
        kv_bytes=num_blocks * 1024,
    )
    line = memory_report(info)[2]
    assert line.startswith(f"longest request: {longest} tokens")
    assert re.findall(r"([\d,]+) of ", line.partition("fit ")[2]) == counts


def test_what_is_not_known_is_said() -> None:
    info = msgspec.structs.replace(INFO, available_bytes=0, kv_budget="")
    first, second, _ = memory_report(info)
    assert first.startswith("memory: how much is available is not known; beside")
    assert second.startswith("KV cache: 1,750.0 MiB: 1,000 blocks")


def test_a_cache_of_experts_is_a_line_of_its_own() -> None:
    info = msgspec.structs.replace(INFO, expert_cache_bytes=3 << 20)
    *usual, line = memory_report(info)
    assert usual == memory_report(INFO)
    assert line == (
        "experts: 3.0 MiB at most hold those that steps used last, packed; the others stay in the "
        "mapped file"
    )
