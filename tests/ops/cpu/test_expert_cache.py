"""Experts that are packed on demand: the same bits, bounded memory, the least recently used go."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from headrace.errors import ConfigError
from headrace.ops.cpu import CpuOps
from headrace.ops.experts import ExpertCacheStats, ExpertMLP, Routes
from headrace.weights.tensors.tensor import Tensor
from tests.ops.cpu.cases import CODECS, F32, LEVELS, matrix, named, normal, vector, whole_blocks
from tests.ops.cpu.test_experts import parts_of, routes_of, taken

HIDDEN, WIDTH = 64, 32


def mlp_of(ops: CpuOps, count: int, codec: str = "Q8_0", seed: int = 0) -> ExpertMLP:
    hidden, width = whole_blocks(codec, HIDDEN), whole_blocks(codec, WIDTH)
    gate_up, down = parts_of(codec, count, hidden, width)
    turn = seed % count
    return ExpertMLP(
        ops.expert_weight(
            gate_up[turn:] + gate_up[:turn], bias=[[vector(e, width), None] for e in range(count)]
        ),
        ops.expert_weight(down[turn:] + down[:turn]),
        "silu",
    )


def of_one(mlp: ExpertMLP) -> int:
    """Packed bytes of one expert, both matrices."""
    return (mlp.gate_up.nbytes + mlp.down.nbytes) // mlp.gate_up.num_experts


def stats_of(ops: CpuOps) -> ExpertCacheStats:
    stats = ops.expert_cache_stats()
    assert stats is not None
    assert 0 <= stats.held_bytes <= stats.limit_bytes
    return stats


def run(ops: CpuOps, mlp: ExpertMLP, *experts: int) -> F32:
    """One token with these experts."""
    chosen = np.array([experts], np.int32)
    weights = normal(5, 1, len(experts))
    return ops.experts(normal(4, 1, mlp.gate_up.in_features), mlp, Routes(chosen, weights))


def check_sizes(level: str, codecs: Sequence[str]) -> None:
    """From one matrix at a time to all; two layers in turn; few tokens and many."""
    for codec in codecs:
        plain = CpuOps(level, 2)
        layers = [mlp_of(plain, 6, codec, seed) for seed in (0, 1)]
        hidden = layers[0].gate_up.in_features
        x, routes = normal(1, 90, hidden), routes_of(90, 6, 2)
        one = layers[0].gate_up.nbytes // 6
        for limit in (one, 2 * one + 1, 5 * of_one(layers[0]), 1 << 30):
            ops = CpuOps(level, 2, expert_cache_bytes=limit)
            mapped = [mlp_of(ops, 6, codec, seed) for seed in (0, 1)]
            for part in (slice(0, 1), slice(1, 4), slice(0, 90)):
                for index in (0, 1):
                    rows, of_rows = x[part].copy(), taken(routes, part)
                    got = ops.experts(rows, mapped[index], of_rows)
                    want = plain.experts(rows, layers[index], of_rows)
                    with named(codec=codec, limit=limit, part=part, layer=index):
                        assert (got == want).all()
                        stats_of(ops)


@pytest.mark.parametrize("level", LEVELS)
def test_no_size_of_the_cache_shows_in_a_result(level: str) -> None:
    check_sizes(level, ("BF16", "Q8_0"))


@pytest.mark.matrix
@pytest.mark.parametrize("level", LEVELS)
def test_no_size_of_the_cache_shows_with_any_codec(level: str) -> None:
    check_sizes(level, CODECS)


def test_hits_misses_and_bytes_are_counted_and_the_least_recently_used_go() -> None:
    ops = CpuOps("auto", 2, expert_cache_bytes=1 << 30)
    one = of_one(mlp_of(ops, 5))
    assert stats_of(ops) == ExpertCacheStats(1 << 30, 0, 0, 0, 0)
    ops = CpuOps("auto", 2, expert_cache_bytes=2 * one)
    mlp = mlp_of(ops, 5)
    stored = 34 * (2 * WIDTH * HIDDEN + HIDDEN * WIDTH) // 32
    history = [
        # experts of a token, hits, misses (two matrices each)
        ((0,), 0, 2), ((1,), 0, 2), ((0,), 2, 0), ((2,), 0, 2),  # expert 1 has gone
        ((0,), 2, 0), ((1,), 0, 2),  # and now expert 2
        ((0, 1), 4, 0), ((3, 4), 0, 4), ((3,), 2, 0), ((4,), 2, 0),
    ]  # fmt: skip
    hits = misses = 0
    for experts, more_hits, more_misses in history:
        run(ops, mlp, *experts)
        hits, misses = hits + more_hits, misses + more_misses
        stats = stats_of(ops)
        assert (stats.hits, stats.misses) == (hits, misses), experts
        assert stats.read_bytes == misses // 2 * stored
    assert stats.held_bytes == 2 * one
    assert CpuOps("auto", 1).expert_cache_stats() is None


def test_matrices_that_are_there_are_used_before_they_have_to_go() -> None:
    """A batch of more experts than fit: those of the last batch that are still there come first."""
    ops = CpuOps("auto", 2, expert_cache_bytes=1 << 30)
    gate_up = mlp_of(ops, 6).gate_up.nbytes // 6
    ops = CpuOps("auto", 2, expert_cache_bytes=3 * gate_up)
    mlp = mlp_of(ops, 6)
    run(ops, mlp, 4, 5)  # both matrices of both: 3 gate_up
    before = stats_of(ops)
    run(ops, mlp, 0, 1, 2, 4, 5)
    after = stats_of(ops)
    assert after.hits - before.hits >= 2


def test_the_stored_rows_stay_alive_and_what_is_dropped_leaves_the_cache(tmp_path: Path) -> None:
    """Rows of a mapped file whose tensors nobody else holds."""
    plain, ops = CpuOps("auto", 1), CpuOps("auto", 1, expert_cache_bytes=1 << 20)
    path = tmp_path / "weights"

    def mapped(tensor: Tensor, at: int) -> Tensor:
        with path.open("ab") as file:
            file.write(tensor.data.tobytes())
        return replace(
            tensor, data=np.memmap(path, np.uint8, "r", at, tensor.data.shape).view(np.ndarray)
        )

    parts = [matrix(e, 64, 32, "Q8_0") for e in range(3)]
    at = np.cumsum([0] + [part.nbytes for part in parts]).tolist()
    downs = [matrix(9 + e, 32, 32, "Q8_0") for e in range(3)]
    stored = {
        plain: [[part] for part in parts],
        ops: [[mapped(part, start)] for part, start in zip(parts, at[:-1], strict=True)],
    }
    weights = [
        ExpertMLP(
            backend.expert_weight(experts),
            backend.expert_weight([[down] for down in downs]),
            "silu",
        )
        for backend, experts in stored.items()
    ]
    stored.clear()
    gc.collect()
    for expert in (0, 2, 1, 0):
        assert (run(plain, weights[0], expert) == run(ops, weights[1], expert)).all()
    assert stats_of(ops).held_bytes == weights[1].gate_up.nbytes + weights[1].down.nbytes
    weights.clear()
    gc.collect()
    assert stats_of(ops).held_bytes == 0


def test_a_single_expert_is_packed_at_load() -> None:
    """Every token needs it (a shared expert): it would go and come back in each step."""
    ops, plain = CpuOps("auto", 1, expert_cache_bytes=1), CpuOps("auto", 1)
    assert (run(ops, mlp_of(ops, 1), 0) == run(plain, mlp_of(plain, 1), 0)).all()
    assert stats_of(ops) == ExpertCacheStats(1, 0, 0, 0, 0)


@pytest.mark.long
def test_threads_that_share_the_cache_get_the_same_results() -> None:
    plain = CpuOps("auto", 2)
    ops = CpuOps("auto", 2, expert_cache_bytes=3 * of_one(mlp_of(plain, 6)))
    want, mlp = mlp_of(plain, 6), mlp_of(ops, 6)
    wrong: list[tuple[int, ...]] = []

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(60):
            experts = tuple(random.permutation(6)[:3].tolist())
            if not (run(ops, mlp, *experts) == run(plain, want, *experts)).all():
                wrong.append(experts)
            mlp_of(ops, 6, seed=seed)  # comes and goes while others compute

    threads = [Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    stats_of(ops)


def test_a_cache_that_is_too_small_is_refused() -> None:
    plain = CpuOps("auto", 1)
    bytes_of_one = mlp_of(plain, 2).gate_up.nbytes // 2
    ops = CpuOps("auto", 1, expert_cache_bytes=bytes_of_one - 1)
    message = f"expert_cache_bytes {bytes_of_one - 1} is less than the {bytes_of_one} bytes of one"
    with pytest.raises(ValueError, match=message):
        mlp_of(ops, 2)
    with pytest.raises(ConfigError, match="expert_cache_bytes -1 is negative; None packs all"):
        CpuOps("auto", 1, expert_cache_bytes=-1)
