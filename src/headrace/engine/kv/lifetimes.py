"""How long a request needs a block: of which of its tokens the layers of a group read K and V.

A group without a window needs all of them. With a window it needs those that the next token sees,
so that of a path in the prefix tree the last blocks are enough.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from headrace.engine.kv.prefix_tree import HOLLOW, Node
from headrace.models.layer_cache import CacheGroup


class Lifetimes:
    """The rules of the groups of a model for blocks of one size."""

    def __init__(self, groups: Sequence[CacheGroup], block_size: int, max_step_tokens: int) -> None:
        self._groups = groups
        self._block_size = block_size
        self._max_step_tokens = max_step_tokens

    def lacking(self, group: CacheGroup, have: int, num_computed: int, num_tokens: int) -> int:
        """Entries that a table of `have` lacks, of `num_tokens` to be computed at last.

        With a window only those of the next step are to be covered now.
        """
        reach = (
            min(num_tokens, num_computed + self._max_step_tokens) if group.window else num_tokens
        )
        return max(0, -(-reach // self._block_size) - have)

    def first_needed(self, group: CacheGroup, num_computed: int) -> int:
        """The first block that tokens from `num_computed` on see anything of."""
        return group.visible.first(num_computed) // self._block_size

    def dropped(self, group: CacheGroup, full: int, num_computed: int) -> int:
        """How many of `full` shared blocks a request that has so many tokens does not hold.

        The last is always held: what is computed next hangs on it in the tree.
        """
        return max(0, min(self.first_needed(group, num_computed), full - 1))

    def usable(self, nodes: list[Node]) -> int:
        """The longest beginning of a path after which every group has what is still read."""
        usable = len(nodes)
        holes = [index for index, node in enumerate(nodes) if node.num_hollow]
        if not holes:
            return usable
        of_groups = [
            (group, [index for index in holes if nodes[index].parts[number].blocks == HOLLOW])
            for number, group in enumerate(self._groups)
        ]
        longer = len(nodes) + 1
        while usable < longer:
            longer = usable
            for group, hollow in of_groups:
                before = bisect_left(hollow, usable)
                dropped = self.dropped(group, usable, usable * self._block_size)
                if before and hollow[before - 1] >= dropped:
                    # What is needed after fewer blocks begins no later, so that it ends before it.
                    usable = hollow[before - 1]
        return usable
