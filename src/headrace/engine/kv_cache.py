"""Who owns which block of the paged KV cache. Numbers only; the arrays are the backend's.

    free     in no block table and in no tree node; content is meaningless
    cached   a node of the prefix tree that no running request holds; may be evicted at any time
    owned    in the block table of at least one running request

free + cached + owned == total after every call. The block table of a request is, as half-open
ranges of block indices:

    [0, len(nodes))                    full, computed, shared: nodes it holds; never written again
    [len(nodes), len(block_table))     its very own: being filled or still empty

A block enters the tree when its tokens have been computed. If an equal one is there by then, the
request takes that one and frees its own: the one arithmetic makes their contents the same bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from headrace.engine.prefix_tree import Miss, Node, PrefixTree, Promise
from headrace.engine.request import Request

REMEMBERED_EVICTIONS = 1 << 16
"""Evicted blocks remembered, to say of a miss that a larger cache would have hit; 10 MB at most."""


class Match(NamedTuple):
    """What of a request is cached; nothing is held yet, so use it before anything else changes."""

    nodes: list[Node]
    waits_for: Promise | None
    miss: Miss | None


class KVCache:
    """Blocks, block tables and the prefix tree. Not thread-safe; knows no time and no budget."""

    def __init__(self, num_blocks: int, block_size: int, *, prefix_caching: bool = True) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.prefix_caching = prefix_caching
        self._num_touched = 0
        self._free: list[int] = []
        """Of the blocks below _num_touched; those from there on have never been used."""
        self._num_owned = 0
        self._tree = PrefixTree(evicted_memory=REMEMBERED_EVICTIONS)

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

    def find(self, request: Request) -> Match:
        """The cached blocks `request` may start from.

        At most all of its tokens but one, since the last has to be computed to give logits. With
        `waits_for`, a running request is computing the block after these: come back when it is not
        pending any more.
        """
        if not self.prefix_caching:
            return Match([], None, Miss("disabled", 0))
        shareable = (request.num_wanted - 1) // self.block_size
        if not shareable:
            return Match([], None, Miss("too_short", 0))
        keys = [request.block_key(index, self.block_size) for index in range(shareable)]
        return Match(*self._tree.walk(request.cache_salt, keys))

    def admit(self, request: Request, match: Match, num_tokens: int, spare: int) -> bool:
        """Give `request` the matched blocks and new ones for `num_tokens` in all, or nothing.

        False, and nothing has changed, where that would leave fewer than `spare` blocks free or
        cached. num_computed becomes what the match covers.
        """
        new = self.blocks_for(num_tokens) - len(match.nodes)
        revived = sum(1 for node in match.nodes if not node.holders)
        if new + spare > self.num_free + self.num_cached - revived:
            return False
        for node in match.nodes:
            self._num_owned += self._tree.hold(node)
        request.nodes = match.nodes
        request.block_table = [node.block for node in match.nodes]
        request.block_table += self._take(new)
        request.num_computed = len(match.nodes) * self.block_size
        self._announce(request)
        return True

    def grow(self, request: Request) -> bool:
        """Cover every token `request` has; False, with nothing changed, where no block is left."""
        new = self.blocks_for(request.num_wanted) - len(request.block_table)
        if new <= 0:
            return True
        if new > self.num_free + self.num_cached:
            return False
        request.block_table += self._take(new)
        return True

    def commit(self, request: Request) -> None:
        """Share the blocks that num_computed has come to cover since the last time."""
        full = request.num_computed // self.block_size
        if full == len(request.nodes) or not self.prefix_caching:
            return
        self._settle(request)
        for index in range(len(request.nodes), full):
            request.nodes.append(self._share(request, index))
        self._announce(request)

    def release(self, request: Request, *, keep: bool = True) -> None:
        """Take all blocks back. Full computed ones stay cached; not `keep`: only shared ones."""
        self._settle(request)
        private = request.block_table[len(request.nodes) :]
        self._give_back(private)
        for node in reversed(request.nodes):
            if self._tree.let_go(node):
                self._num_owned -= 1
                if not keep and not node.children:
                    self._free.append(self._tree.forget(node))
        request.nodes = []
        request.block_table = []
        request.num_computed = 0

    def check(self, running: Iterable[Request]) -> None:
        """Count everything anew from the block tables; AssertionError where it does not add up."""
        holders: Counter[Node] = Counter()
        private: list[int] = []
        for request in running:
            shared = request.block_table[: len(request.nodes)]
            assert shared == [node.block for node in request.nodes], "table and nodes differ"
            parents = [node.parent for node in request.nodes[1:]]
            assert parents == request.nodes[:-1], "held nodes are no path"
            assert len(request.nodes) <= request.num_computed // self.block_size
            holders.update(request.nodes)
            private += request.block_table[len(request.nodes) :]
        nodes = self._tree.nodes()
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
        self._num_owned += self._tree.hold(node)
        self._give_back([block])
        request.block_table[index] = node.block
        request.table_synced = min(request.table_synced, index)
        return node

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
        blocks = [self._take_one() for _ in range(count)]
        self._num_owned += count
        return blocks

    def _take_one(self) -> int:
        if self._free:
            return self._free.pop()
        if self._num_touched == self.num_blocks:
            return self._tree.evict()
        self._num_touched += 1
        return self._num_touched - 1

    def _give_back(self, blocks: list[int]) -> None:
        self._free.extend(reversed(blocks))
        self._num_owned -= len(blocks)
