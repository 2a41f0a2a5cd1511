"""Which beginnings of prompts each target was sent lately, and so may have in its KV cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

# The default of llm-d. With 256 bytes each that is 8 MB of text; an entry takes about 100 bytes.
MOST_BLOCKS_PER_TARGET = 31_250


class PrefixIndex:
    """Blocks by target, bounded: the least recently used are forgotten first, as in an engine."""

    def __init__(self, most_blocks: int = MOST_BLOCKS_PER_TARGET) -> None:
        self._most_blocks = most_blocks
        self._blocks: dict[str, OrderedDict[int, None]] = {}

    def matched(self, target: str, blocks: Sequence[int]) -> int:
        """How many of a prompt's first blocks the target was sent."""
        known = self._blocks.get(target)
        if known is None:
            return 0
        count = 0
        for block in blocks:
            if block not in known:
                break
            count += 1
        return count

    def had(self, target: str, blocks: Sequence[int]) -> None:
        """Record that the target has answered a prompt with these blocks."""
        known = self._blocks.setdefault(target, OrderedDict())
        # The last first, so that a prompt's end is forgotten before its beginning.
        for block in reversed(blocks):
            known[block] = None
            known.move_to_end(block)
        while len(known) > self._most_blocks:
            known.popitem(last=False)

    def forget(self, target: str) -> None:
        """Forget a target that was restarted with an empty cache."""
        self._blocks.pop(target, None)

    @property
    def blocks(self) -> int:
        """The number of known blocks of all targets."""
        return sum(len(blocks) for blocks in self._blocks.values())
