"""How much of a request is cached: full blocks that it can share, and of one more the beginning.

At most all of its tokens but one, since the last has to be computed to give logits, and none whose
logits are wanted besides.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.engine.kv.lifetimes import Lifetimes
from headrace.engine.kv.prefix_tree import Miss, Node, PrefixTree, Promise
from headrace.engine.request import Request


class Match(NamedTuple):
    """The cached part of a request; nothing is held yet, so use it before anything else changes."""

    nodes: list[Node]
    num_tokens: int
    """Covered by the nodes and the copy."""
    waits_for: Promise | None
    miss: Miss | None
    source: Node | None = None
    """What the block after the nodes is copied from; None where they end with a block."""

    def without_copy(self, block_size: int, reason: str) -> Match:
        """The full blocks alone. reason: of the miss, why the block after them is not copied."""
        full = len(self.nodes) * block_size
        return Match(self.nodes, full, self.waits_for, Miss(reason, full))


def look_up(tree: PrefixTree, lifetimes: Lifetimes, request: Request, block_size: int) -> Match:
    """What of `request` is in the tree and of use to every group of layers."""
    most = request.num_scored if request.unscored else request.num_wanted - 1
    keys = [request.block_key(index, block_size) for index in range(most // block_size)]
    nodes, waits_for, miss = tree.walk(request.cache_salt, keys)
    usable = lifetimes.usable(nodes)
    start = usable * block_size
    parent = nodes[usable - 1] if usable else None
    if usable < len(nodes):
        nodes = nodes[:usable]
        waits_for = tree.promised(request.cache_salt, parent, keys[usable])
        miss = Miss("evicted", start)
    if waits_for is not None:
        return Match(nodes, start, waits_for, None)
    key = request.key_of(start, min(most, start + block_size))
    found = tree.nearest(request.cache_salt, parent, key)
    if found is not None:
        source, count = found
        if miss is not None:
            miss = Miss(miss.reason, max(miss.token, start + count))
        return Match(nodes, start + count, None, miss, source)
    if not keys:
        miss = Miss("too_short" if request.num_wanted <= block_size else "prompt_logprobs", 0)
    return Match(nodes, start, None, miss)
