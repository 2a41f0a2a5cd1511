"""How many blocks a request holds at most, by its length and the windows of groups of layers."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.models.layer_cache import CacheGroup


def most_blocks(num_tokens: int, block_size: int, window: int, max_step_tokens: int) -> int:
    """Blocks of one table that a request holds at most while it grows to `num_tokens`; window 0:
    no window.
    """
    whole = -(-num_tokens // block_size)
    most = most_held(window, block_size, max_step_tokens)
    return min(whole, most) if most else whole


def most_held(window: int, block_size: int, max_step_tokens: int) -> int:
    """Blocks of one table that a request of any length holds at most; 0 without a window.

    What a step sees and computes, which need not begin or end with a block, and the block the next
    one hangs on in the prefix tree.
    """
    return -(-(window + max_step_tokens) // block_size) + 2 if window else 0


def most_blocks_of(
    groups: Sequence[CacheGroup], num_tokens: int, block_size: int, max_step_tokens: int
) -> int:
    """Blocks of all groups that a request holds at most while it grows to `num_tokens`."""
    return sum(
        group.num_tables * most_blocks(num_tokens, block_size, group.window, max_step_tokens)
        for group in groups
    )
