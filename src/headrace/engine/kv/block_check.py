"""The invariant of the KV cache, counted again from the block tables of running requests.

    free + cached + owned == total

Every block that was ever taken is in exactly one place: on the free list, in one part of the prefix
tree, or in the table of one request that shares it with nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING

from headrace.engine.kv.prefix_tree import TOKEN_BYTES
from headrace.engine.request import Request

if TYPE_CHECKING:
    from headrace.engine.kv.kv_cache import KVCache
    from headrace.engine.kv.prefix_tree import BlockSet, Part


def check_blocks(kv: KVCache, running: Iterable[Request]) -> None:
    """AssertionError where what the cache counts is not what these requests and its tree hold."""
    tree = kv._tree
    holders: Counter[Part] = Counter()
    private: list[list[BlockSet]] = [[] for _ in kv.groups]
    for request in running:
        nodes = request.nodes
        parents = [node.parent for node in nodes[1:]]
        assert parents == nodes[:-1], "held nodes are not a path"
        assert len(nodes) <= request.num_computed // kv.block_size
        lengths = [len(table.blocks) for table in request.tables]
        assert request.num_covered == min(lengths) * kv.block_size
        for number, (group, table) in enumerate(zip(kv.groups, request.tables, strict=True)):
            dropped = table.num_dropped
            held = [node.parts[number] for node in nodes[dropped:]]
            shared = table.blocks[dropped : len(nodes)]
            assert shared == [part.blocks for part in held], "table and nodes differ"
            assert not any(map(any, table.blocks[:dropped])), "a dropped block is in the table"
            needed = kv.lifetimes.first_needed(group, request.num_computed)
            assert dropped <= needed, "a needed block is dropped"
            holders.update(held)
            private[number] += table.blocks[max(len(nodes), dropped) :]
    found = tree.nodes()
    for above in [*tree._roots.values(), *found]:
        with_all = [key for key, child in above.children.items() if not child.num_hollow]
        assert above.whole == sorted(with_all), "other children have all their blocks"
        for key, longer in pairwise(above.whole):
            tail = above.children[key].is_tail
            assert not (tail and longer.startswith(key)), "a sibling begins with a tail"
    for node in found:
        assert node.num_hollow == sum(not part.blocks for part in node.parts)
        if node.is_tail:
            assert not node.children and not node.num_hollow, "a tail is not a whole leaf"
            assert len(node.key) < kv.block_size * TOKEN_BYTES
    assert all(node.children for node in found if node.is_hollow), "a hollow leaf"
    parts = [part for node in found for part in node.parts if part.blocks]
    whole = len(found) * len(kv.groups)
    assert kv.has_windows or len(parts) == whole, "a hollow part without a window"
    assert all(part.holders == holders[part] for part in parts), "holders miscounted"
    assert set(holders) <= set(parts), "a held part is not in the tree"
    cached = [part for part in parts if not part.holders]
    assert set(tree.cached) == set(cached), "cached parts miscounted"
    blocks = kv._free + [block for part in parts for block in part.blocks]
    blocks += [block for own in private for entry in own for block in entry]
    assert kv._num_touched <= kv.num_blocks
    assert sorted(blocks) == list(range(kv._num_touched)), "a block is lost or owned twice"
    for number, group in enumerate(kv.groups):
        of_group = [part for part in parts if part.group == number]
        assert all(len(part.blocks) == group.num_tables for part in of_group)
        unheld = sum(1 for part in of_group if not part.holders) * group.num_tables
        all_held = (len(private[number]) + len(of_group)) * group.num_tables - unheld
        assert tree.num_cached[number] == unheld, "cached blocks miscounted"
        assert kv._owned[number] == all_held, "owned blocks miscounted"
    assert kv.num_free + kv.num_cached + kv.num_owned == kv.num_blocks
