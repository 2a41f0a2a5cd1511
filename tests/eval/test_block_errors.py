"""Standard errors over blocks, against many texts drawn anew."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from headrace.eval.block_errors import (
    LEAST_BLOCKS,
    block_lengths,
    mean_error,
    quantile_errors,
)


def correlated(random: np.random.Generator, blocks: int, tokens: int) -> npt.NDArray[np.float64]:
    """Values whose blocks of `tokens` share a level that varies as much as values within do."""
    level = np.repeat(random.standard_normal(blocks), tokens)
    return np.asarray(np.exp(level + random.standard_normal(blocks * tokens)))


def test_the_error_of_a_mean_is_the_spread_of_means_of_other_texts() -> None:
    random = np.random.default_rng(3)
    texts = [correlated(random, 200, 20) for _ in range(300)]
    spread = np.std([text.mean() for text in texts])
    found = np.mean([mean_error(text, [20] * 200) for text in texts])
    assert found == pytest.approx(spread, rel=0.1)
    independent = np.mean([text.std() / len(text) ** 0.5 for text in texts])
    assert independent < spread / 2, "counting tokens would claim far too much"


def test_the_error_of_a_quantile_is_the_spread_of_quantiles_of_other_texts() -> None:
    random = np.random.default_rng(4)
    texts = [correlated(random, 100, 20) for _ in range(200)]
    spread = np.std([np.quantile(text, (0.5, 0.9)) for text in texts], axis=0)
    found = np.mean(
        [quantile_errors(text, [20] * 100, (0.5, 0.9), 1) for text in texts[:20]], axis=0
    )
    assert found == pytest.approx(spread, rel=0.2)


def test_resampled_quantiles_are_those_of_the_tokens_drawn() -> None:
    """Blocks of unequal lengths, drawn by hand with the same seed."""
    random = np.random.default_rng(5)
    blocks = [3, 9, 1, 7]
    values = random.standard_normal(sum(blocks))
    parts = np.split(values, np.cumsum(blocks)[:-1])
    draws = np.random.default_rng(7)
    quantiles = (0.0, 0.3, 0.5, 0.999, 1.0)
    by_hand = [
        np.quantile(np.concatenate([parts[at] for at in draws.integers(0, 4, 4)]), quantiles)
        for _ in range(400)
    ]
    expected = np.std(by_hand, axis=0, ddof=1)
    assert quantile_errors(values, blocks, quantiles, 7) == pytest.approx(expected, rel=1e-9)


def test_blocks_are_windows_or_equal_parts_of_them() -> None:
    assert block_lengths([255] * 40) == [255] * 40
    assert block_lengths([]) == []
    few = block_lengths([31, 31, 31])
    assert sum(few) == 93 and len(few) >= LEAST_BLOCKS and max(few) - min(few) <= 1
    assert block_lengths([3]) == [1, 1, 1]


def test_one_block_has_no_error() -> None:
    values = np.array([1.0, 2.0])
    assert mean_error(values, [2]) == 0.0
    assert quantile_errors(values, [2], (0.5,), 0) == [0.0]


def test_a_mean_over_single_tokens_has_the_usual_error() -> None:
    values = np.random.default_rng(6).standard_normal(50)
    assert mean_error(values, [1] * 50) == pytest.approx(values.std(ddof=1) / 50**0.5)
