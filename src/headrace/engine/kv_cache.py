"""Who owns which block of the paged KV cache. Numbers only; the arrays are the backend's.

    free     in no block table and in no tree node; content is meaningless
    cached   a node of the prefix tree that no running request holds; may be evicted at any time
    owned    in the block table of at least one running request

free + cached + owned == total after every call. The block table of a request is, as half-open
ranges of block indices:

    [0, num_dropped)                   before its window: not held, entries are 0
    [num_dropped, len(nodes))          full, computed, shared: nodes it holds; never written again
    [len(nodes), len(block_table))     its very own: being filled or still empty

Where every layer of the model has a window, a request lets go of the blocks that lie before it, and
is given new ones a step at a time, so that what it holds does not grow with its length. A prefix is
then of use where the blocks of its last window are there; those before may be gone (`HOLLOW`).

A block enters the tree when its tokens have been computed. If an equal one is there by then, the
request takes that one and frees its own: the one arithmetic makes their contents the same bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headrace.engine.prefix_tree import HOLLOW, Miss, Node, PrefixTree, Promise
from headrace.engine.request import Request

REMEMBERED_EVICTIONS = 1 << 16
"""Evicted blocks remembered, to say of a miss that a larger cache would have hit; 10 MB at most."""

REMEMBERED_PER_BLOCK = 16
"""For each block there is: a cache 16 times as large is not what a miss is about."""


class Match(NamedTuple):
    """The cached part of a request; nothing is held yet, so use it before anything else changes."""

    nodes: list[Node]
    waits_for: Promise | None
    miss: Miss | None


def most_blocks(num_tokens: int, block_size: int, window: int, max_step_tokens: int) -> int:
    """Blocks a request holds at most while it grows to `num_tokens`; window 0: no window.

    With a window: what a step sees and computes, which need not begin or end with a block, and the
    block the next one hangs on in the prefix tree.
    """
    whole = -(-num_tokens // block_size)
    if not window:
        return whole
    return min(whole, -(-(window + max_step_tokens) // block_size) + 2)


class KVCache:
    """Blocks, block tables and the prefix tree. Not thread-safe; knows no time and no budget."""

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        prefix_caching: bool = True,
        window: int = 0,
        max_step_tokens: int = 0,
    ) -> None:
        """window: positions any layer sees, 0 for all. max_step_tokens: of a request in a step;
        needed with a window only.
        """
        self.window = window
        self.max_step_tokens = max_step_tokens
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.prefix_caching = prefix_caching
        self._num_touched = 0
        self._free: list[int] = []
        """Of the blocks below _num_touched; those from there on have never been used."""
        self._num_owned = 0
        self._tree = PrefixTree(
            evicted_memory=min(REMEMBERED_EVICTIONS, REMEMBERED_PER_BLOCK * num_blocks),
            windowed=window > 0,
        )

    @property
    def num_free(self) -> int:
        """Blocks that hold nothing."""
        return len(self._free) + self.num_blocks - self._num_touched

    @property
    def num_cached(self) -> int:
        """Blocks that hold something no running request uses."""
        return len(self._tree.cached)

    @property
    def num_owned(self) -> int:
        """Blocks running requests use, each counted once."""
        return self._num_owned

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens`."""
        return -(-num_tokens // self.block_size)

    def most_blocks(self, num_tokens: int) -> int:
        """Blocks a request holds at most while it grows to `num_tokens`."""
        return most_blocks(num_tokens, self.block_size, self.window, self.max_step_tokens)

    def find(self, request: Request) -> Match:
        """The cached blocks `request` may start from.

        At most all of its tokens but one, since the last has to be computed to give logits, and
        none whose logits are wanted besides. With `waits_for`, a running request is computing the
        block after these: come back when it is not pending any more.
        """
        if not self.prefix_caching:
            return Match([], None, Miss("disabled", 0))
        shareable = (request.num_wanted - 1) // self.block_size
        if shareable and request.unscored:
            shareable = request.num_scored // self.block_size
            if not shareable:
                return Match([], None, Miss("prompt_logprobs", 0))
        if not shareable:
            return Match([], None, Miss("too_short", 0))
        keys = [request.block_key(index, self.block_size) for index in range(shareable)]
        nodes, waits_for, miss = self._tree.walk(request.cache_salt, keys)
        usable = self._usable(nodes)
        if usable < len(nodes):
            return Match(nodes[:usable], None, Miss("evicted", usable * self.block_size))
        return Match(nodes, waits_for, miss)

    def admit(self, request: Request, match: Match, num_tokens: int, spare: int) -> bool:
        """Give `request` the matched blocks and new ones for `num_tokens` in all, or nothing.

        False, and nothing has changed, where that would leave fewer than `spare` blocks free or
        cached. num_computed becomes what the match covers.
        """
        if self.missing(match, num_tokens, spare) > 0:
            return False
        computed = len(match.nodes) * self.block_size
        new = self.blocks_for(self._reach(computed, num_tokens)) - len(match.nodes)
        dropped = self._dropped(len(match.nodes))
        held = match.nodes[dropped:]
        for node in held:
            self._num_owned += self._tree.hold(node)
        request.nodes = match.nodes
        request.num_dropped = dropped
        request.block_table = [0] * dropped + [node.block for node in held]
        request.block_table += self._take(new)
        request.num_computed = computed
        self._announce(request)
        return True

    def missing(self, match: Match, num_tokens: int, spare: int) -> int:
        """How many blocks too few are free or cached for `admit`; at most 0 where it would do."""
        computed = len(match.nodes) * self.block_size
        new = self.blocks_for(self._reach(computed, num_tokens)) - len(match.nodes)
        held = match.nodes[self._dropped(len(match.nodes)) :]
        revived = sum(1 for node in held if not node.holders)
        return new + spare - (self.num_free + self.num_cached - revived)

    def gains(self, requests: Iterable[Request], match: Match) -> Iterator[int]:
        """By how much `missing` of `match` would fall if these gave their blocks back, one more of
        them each time: blocks that others hold as well, or that `match` is made of, are no gain.
        """
        kept = set(match.nodes)
        released: Counter[Node] = Counter()
        gained = 0
        for request in requests:
            gained += len(request.block_table) - max(len(request.nodes), request.num_dropped)
            for node in request.nodes[request.num_dropped :]:
                released[node] += 1
                gained += released[node] == node.holders and node not in kept
            yield gained

    def grow(self, request: Request) -> bool:
        """Cover every token `request` has, or with a window those of the next step.

        False, with nothing changed, where no block is left.
        """
        reach = self._reach(request.num_computed, request.num_wanted)
        new = self.blocks_for(reach) - len(request.block_table)
        if new <= 0:
            return True
        if new > self.num_free + self.num_cached:
            return False
        request.block_table += self._take(new)
        return True

    def commit(self, request: Request) -> None:
        """Share the blocks that num_computed has come to cover, let go of those before a window."""
        full = request.num_computed // self.block_size
        if full > len(request.nodes) and self.prefix_caching:
            self._settle(request)
            for index in range(len(request.nodes), full):
                request.nodes.append(self._share(request, index))
            self._announce(request)
        if self.window:
            self._drop(request)

    def release(self, request: Request, *, keep: bool = True) -> None:
        """Take all blocks back. Full computed ones stay cached; not `keep`: only shared ones."""
        self._settle(request)
        private = request.block_table[max(len(request.nodes), request.num_dropped) :]
        self._give_back(private)
        for node in reversed(request.nodes[request.num_dropped :]):
            if self._tree.let_go(node):
                self._num_owned -= 1
                if not keep and not node.children:
                    self._free.append(self._tree.forget(node))
        request.nodes = []
        request.block_table = []
        request.num_dropped = 0
        request.num_computed = 0

    def forget_cached(self) -> int:
        """Free every cached block, as if it had never been; how many that were."""
        forgotten = 0
        while self._tree.cached:
            self._free.append(self._tree.evict(remember=False))
            forgotten += 1
        return forgotten

    def check(self, running: Iterable[Request]) -> None:
        """Count everything anew from the block tables; AssertionError where it does not add up."""
        holders: Counter[Node] = Counter()
        private: list[int] = []
        for request in running:
            dropped, nodes = request.num_dropped, request.nodes
            shared = request.block_table[dropped : len(nodes)]
            assert shared == [node.block for node in nodes[dropped:]], "table and nodes differ"
            assert not any(request.block_table[:dropped]), "a dropped block is in the table"
            assert dropped <= self._first_needed(request.num_computed), "a needed block is dropped"
            parents = [node.parent for node in request.nodes[1:]]
            assert parents == request.nodes[:-1], "held nodes are not a path"
            assert len(request.nodes) <= request.num_computed // self.block_size
            holders.update(nodes[dropped:])
            private += request.block_table[max(len(nodes), dropped) :]
        found = self._tree.nodes()
        nodes = [node for node in found if node.block != HOLLOW]
        assert self.window or len(nodes) == len(found), "a hollow node without a window"
        assert all(node.children for node in found if node.block == HOLLOW), "a hollow leaf"
        assert all(node.holders == holders[node] for node in nodes), "holders miscounted"
        assert set(holders) <= set(nodes), "a held node is not in the tree"
        cached = [node for node in nodes if not node.holders]
        assert set(self._tree.cached) == set(cached), "cached nodes miscounted"
        blocks = self._free + private + [node.block for node in nodes]
        assert self._num_touched <= self.num_blocks
        assert sorted(blocks) == list(range(self._num_touched)), "a block is lost or owned twice"
        assert self.num_owned == len(private) + len(nodes) - len(cached), "owned miscounted"
        assert self.num_free + self.num_cached + self.num_owned == self.num_blocks

    def _share(self, request: Request, index: int) -> Node:
        """The node of a block just computed: its own block, or an equal one found in the tree."""
        parent = request.nodes[-1] if request.nodes else None
        key = request.block_key(index, self.block_size)
        block = request.block_table[index]
        node = self._tree.child(request.cache_salt, parent, key)
        if node is None:
            return self._tree.insert(request.cache_salt, parent, key, block)
        if node.block == HOLLOW:
            self._tree.fill(node, block)
            return node
        self._num_owned += self._tree.hold(node)
        self._give_back([block])
        request.block_table[index] = node.block
        request.table_synced = min(request.table_synced, index)
        return node

    def _reach(self, num_computed: int, num_tokens: int) -> int:
        """Tokens to be covered by blocks now, of `num_tokens` to be computed at last."""
        if not self.window:
            return num_tokens
        return min(num_tokens, num_computed + self.max_step_tokens)

    def _first_needed(self, num_computed: int) -> int:
        """The first block that tokens from `num_computed` on see anything of."""
        if not self.window:
            return 0
        return max(0, num_computed + 1 - self.window) // self.block_size

    def _dropped(self, full: int) -> int:
        """How many of `full` shared blocks a request does not hold.

        The last is always held: what is computed next hangs on it in the tree.
        """
        return max(0, min(self._first_needed(full * self.block_size), full - 1))

    def _usable(self, nodes: list[Node]) -> int:
        """The longest beginning of a path after which every block that is still read is there."""
        if not self.window:
            return len(nodes)
        best = since = 0
        for index, node in enumerate(nodes):
            if node.block == HOLLOW:
                since = index + 1
            elif since <= self._dropped(index + 1):
                best = index + 1
        return best

    def _drop(self, request: Request) -> None:
        """Let go of the blocks before the window, the first of them first to be evicted."""
        first = self._first_needed(request.num_computed)
        if self.prefix_caching:
            first = min(first, len(request.nodes) - 1)
        if first <= request.num_dropped:
            return
        for index in range(request.num_dropped, first):
            if index >= len(request.nodes):
                self._give_back([request.block_table[index]])
            elif self._tree.let_go(request.nodes[index]):
                self._num_owned -= 1
            request.block_table[index] = 0
        request.table_synced = min(request.table_synced, request.num_dropped)
        request.num_dropped = first

    def _announce(self, request: Request) -> None:
        """Promise the block that is computed next, if its tokens are all known."""
        index = len(request.nodes)
        if not self.prefix_caching or (index + 1) * self.block_size > request.num_wanted:
            return
        parent = request.nodes[-1] if request.nodes else None
        key = request.block_key(index, self.block_size)
        request.promise = self._tree.promise(request.cache_salt, parent, key)

    def _settle(self, request: Request) -> None:
        if request.promise is not None:
            self._tree.settle(request.promise)
            request.promise = None

    def _take(self, count: int) -> list[int]:
        """`count` blocks, evicting where none is free; the caller made sure there are enough."""
        if not count:
            return []
        blocks = self._free[: -count - 1 : -1]
        del self._free[-count:]
        touched = self._num_touched
        self._num_touched = min(touched + count - len(blocks), self.num_blocks)
        blocks += range(touched, self._num_touched)
        blocks += [self._tree.evict() for _ in range(count - len(blocks))]
        self._num_owned += count
        return blocks

    def _give_back(self, blocks: list[int]) -> None:
        self._free.extend(reversed(blocks))
        self._num_owned -= len(blocks)
