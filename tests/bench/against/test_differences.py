"""Models differ where names, sizes or kinds of weights that are known do, and only then."""

from __future__ import annotations

import pytest

from headrace.bench.against.differences import differences
from headrace.bench.against.peer import ServerFacts

HASH = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("ours", "weights", "peer", "peer_weights", "differ"),
    [
        ("Qwen3-0.6B-Q8_0", "Q8_0", "/m/Qwen3-0.6B-Q8_0.gguf", None, []),
        ("Qwen3-0.6B", "bf16", "Qwen/Qwen3-0.6B", None, []),
        ("Qwen3-0.6B-Q8_0", "Q8_0", "qwen3:0.6b", None, []),
        ("Qwen3-0.6B", "bf16", "/hub/models--Qwen--Qwen3-0.6B/snapshots/0123abcd", None, []),
        ("Qwen3-0.6B-Q8_0", "Q8_0", f"/blobs/sha256-{HASH}", None, []),
        ("Qwen3-0.6B-Q8_0", "Q8_0", None, None, []),
        ("Qwen3-0.6B", "bf16", "Qwen3-0.6B-BF16-00001-of-00002.gguf", None, []),
        ("Qwen3-0.6B-Q4_K_M", "Q6_K", "Qwen3-0.6B-Q4_K_M.gguf", None, []),
        ("model", "Q8_0", "model", "Q8_0", []),
        ("model", "Q8_0", "/m/Qwen3-0.6B-Q8_0.gguf", None, []),
        ("Llama-3.2-1B", None, "Qwen3-1B", None, ["names"]),
        ("Qwen3-0.6B", None, "Qwen3-1.7B", None, ["names", "sizes"]),
        ("Qwen3-0.6B-Q8_0", "Q8_0", "Qwen3-0.6B-Q4_K_M.gguf", None, ["kinds of weights"]),
        ("Qwen3-0.6B", "bf16", "Qwen3-0.6B-Q8_0.gguf", None, ["kinds of weights"]),
        ("Qwen3-0.6B", "Q6_K", "Qwen3-0.6B-Q4_K_M.gguf", None, []),
        ("model", "Q8_0", "model", "f32", ["kinds of weights"]),
    ],
)
def test_differences(
    ours: str, weights: str | None, peer: str | None, peer_weights: str | None, differ: list[str]
) -> None:
    one = ServerFacts(url="http://127.0.0.1:1", model=ours, weights=weights)
    other = ServerFacts(url="http://127.0.0.1:2", model=peer, weights=peer_weights)
    assert differences(one, other) == differ


@pytest.mark.parametrize(
    ("ours", "peer", "differ"),
    [
        ((600, 640), (610, 650), []),
        ((600, 640), (None, None), []),
        ((None, None), (600, 640), []),
        ((600, 640), (620, 640), ["numbers of parameters"]),
        ((600, 640), (600, 400), ["bytes of weights"]),
    ],
)
def test_sizes_of_files_differ_by_more_than_2_percent(
    ours: tuple[int | None, int | None], peer: tuple[int | None, int | None], differ: list[str]
) -> None:
    one, other = (
        ServerFacts(url="http://127.0.0.1:1", model="m", parameters=values, weight_bytes=size)
        for values, size in (ours, peer)
    )
    assert differences(one, other) == differ
