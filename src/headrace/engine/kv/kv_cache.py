"""Who owns which block of the paged KV cache. Numbers only; the arrays are the backend's.

    free     in no block table and in no tree node; content is meaningless
    cached   of a part of a tree node that no running request holds; may be evicted at any time
    owned    in a block table of at least one running request

free + cached + owned == total after every call; cached and owned are counted for each group of
layers (models/layer_cache.py), and any group may take a free block. A request has a block table of
each group, whose entries are the blocks of all of the group's tables. As half-open ranges of block
indices it is:

    [0, num_dropped)                   before its window: not held, entries are 0
    [num_dropped, len(nodes))          full, computed, shared: parts it holds; never written again
    [len(nodes), len(blocks))          its very own: being filled or still empty

Of a group whose layers have a window, a request lets go of the blocks that lie before it, and is
given new ones a step at a time, so that what it holds does not grow with its length. A prefix is of
use as far as every group has what its layers still read; parts before may be gone (`HOLLOW`).

Blocks enter the tree when their tokens have been computed. If equal ones are there by then, the
request takes those and frees its own: the one arithmetic makes their contents the same bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from headrace.engine.kv.kv_sizes import most_blocks_of
from headrace.engine.kv.prefix_tree import HOLLOW, BlockSet, Miss, Node, Part, PrefixTree, Promise
from headrace.engine.request import GroupTable, Request
from headrace.models.layer_cache import ONE_GROUP, CacheGroup

REMEMBERED_EVICTIONS = 1 << 16
"""Evicted blocks remembered, to say of a miss that a larger cache would have hit; 10 MB at most."""

REMEMBERED_PER_BLOCK = 16
"""For each block there is: a cache 16 times as large is not what a miss is about."""


class Match(NamedTuple):
    """The cached part of a request; nothing is held yet, so use it before anything else changes."""

    nodes: list[Node]
    waits_for: Promise | None
    miss: Miss | None


class KVCache:
    """Blocks, block tables and the prefix tree. Not thread-safe; knows no time and no budget."""

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        prefix_caching: bool = True,
        groups: Sequence[CacheGroup] = ONE_GROUP,
        max_step_tokens: int = 0,
    ) -> None:
        """max_step_tokens: of a request in a step; needed where a group has a window."""
        self.groups = tuple(groups)
        self.max_step_tokens = max_step_tokens
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.prefix_caching = prefix_caching
        self.has_windows = any(group.window for group in groups)
        """Whether a request lets go of blocks while it runs."""
        self.num_tables = sum(group.num_tables for group in groups)
        """Blocks that `block_size` tokens take while they are inside of all windows."""
        self._num_touched = 0
        self._free: list[int] = []
        """Of the blocks below _num_touched; those from there on have never been used."""
        self._owned = [0] * len(self.groups)
        self._tree = PrefixTree(
            evicted_memory=min(REMEMBERED_EVICTIONS, REMEMBERED_PER_BLOCK * num_blocks),
            num_groups=len(self.groups),
        )

    @property
    def num_free(self) -> int:
        """Blocks that hold nothing."""
        return len(self._free) + self.num_blocks - self._num_touched

    @property
    def num_cached(self) -> int:
        """Blocks that hold something no running request uses."""
        return sum(self._tree.num_cached)

    @property
    def num_owned(self) -> int:
        """Blocks running requests use, each counted once."""
        return sum(self._owned)

    @property
    def owned_by_group(self) -> dict[str, int]:
        """num_owned of each group, by its name."""
        return {group.name: owned for group, owned in zip(self.groups, self._owned, strict=True)}

    def blocks_for(self, num_tokens: int) -> int:
        """Entries of a block table that hold `num_tokens`."""
        return -(-num_tokens // self.block_size)

    def most_blocks(self, num_tokens: int) -> int:
        """Blocks a request holds at most while it grows to `num_tokens`."""
        return most_blocks_of(self.groups, num_tokens, self.block_size, self.max_step_tokens)

    def num_held(self, request: Request) -> int:
        """Blocks in the tables of a running request, those it shares included."""
        return sum(
            group.num_tables * (len(table.blocks) - table.num_dropped)
            for group, table in zip(self.groups, request.tables, strict=True)
        )

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
        full = len(match.nodes)
        request.nodes = match.nodes
        request.num_computed = full * self.block_size
        request.tables = []
        for number, group in enumerate(self.groups):
            dropped = self._dropped(group, full)
            blocks: list[BlockSet] = [(0,) * group.num_tables] * dropped
            for node in match.nodes[dropped:]:
                part = node.parts[number]
                self._owned[number] += self._tree.hold(part)
                blocks.append(part.blocks)
            request.tables.append(GroupTable(blocks, dropped))
        self._extend(request, num_tokens)
        self._announce(request)
        return True

    def missing(self, match: Match, num_tokens: int, spare: int) -> int:
        """How many blocks too few are free or cached for `admit`; at most 0 where it would do."""
        full = len(match.nodes)
        computed = full * self.block_size
        lacking = 0
        for number, group in enumerate(self.groups):
            held = match.nodes[self._dropped(group, full) :]
            revived = sum(1 for node in held if not node.parts[number].holders)
            new = self._lacking(group, full, computed, num_tokens)
            lacking += (new + revived) * group.num_tables
        return lacking + spare - (self.num_free + self.num_cached)

    def gains(self, requests: Iterable[Request], match: Match) -> Iterator[int]:
        """By how much `missing` of `match` would fall if these gave their blocks back, one more of
        them each time: blocks that others hold as well, or that `match` holds, are no gain.
        """
        kept = {
            node.parts[number]
            for number, group in enumerate(self.groups)
            for node in match.nodes[self._dropped(group, len(match.nodes)) :]
        }
        released: Counter[Part] = Counter()
        gained = 0
        for request in requests:
            for number, table in enumerate(request.tables):
                private = len(table.blocks) - max(len(request.nodes), table.num_dropped)
                gained += private * self.groups[number].num_tables
                for node in request.nodes[table.num_dropped :]:
                    part = node.parts[number]
                    released[part] += 1
                    if released[part] == part.holders and part not in kept:
                        gained += len(part.blocks)
            yield gained

    def grow(self, request: Request) -> bool:
        """Cover every token `request` has, or with a window those of the next step.

        False, with nothing changed, where no block is left.
        """
        if request.num_wanted <= request.num_covered:
            return True
        lacking = sum(
            self._lacking(group, len(table.blocks), request.num_computed, request.num_wanted)
            * group.num_tables
            for group, table in zip(self.groups, request.tables, strict=True)
        )
        if lacking > self.num_free + self.num_cached:
            return False
        self._extend(request, request.num_wanted)
        return True

    def commit(self, request: Request) -> None:
        """Share the blocks that num_computed has come to cover, let go of those before a window."""
        full = request.num_computed // self.block_size
        if full > len(request.nodes) and self.prefix_caching:
            self._settle(request)
            for index in range(len(request.nodes), full):
                request.nodes.append(self._share(request, index))
            self._announce(request)
        if self.has_windows:
            self._drop(request)

    def release(self, request: Request, *, keep: bool = True) -> None:
        """Take all blocks back. Full computed ones stay cached; not `keep`: only shared ones."""
        self._settle(request)
        for number, table in enumerate(request.tables):
            self._give_back(number, table.blocks[max(len(request.nodes), table.num_dropped) :])
        held_from = [table.num_dropped for table in request.tables]
        first = min(held_from, default=0) if keep else 0
        for index in range(len(request.nodes) - 1, first - 1, -1):
            node = request.nodes[index]
            for number, part in enumerate(node.parts):
                if index >= held_from[number]:
                    self._owned[number] -= self._tree.let_go(part)
            if not keep and not node.children:
                self._free.extend(self._tree.forget(node))
        request.nodes = []
        request.tables = []
        request.num_covered = 0
        request.num_computed = 0

    def forget_cached(self) -> int:
        """Free every cached block, as if it had never been; how many that were."""
        forgotten = self.num_cached
        while self._tree.cached:
            self._free.extend(self._tree.evict(remember=False))
        return forgotten

    def check(self, running: Iterable[Request]) -> None:
        """Count everything anew from the block tables; AssertionError where it does not add up."""
        holders: Counter[Part] = Counter()
        private: list[list[BlockSet]] = [[] for _ in self.groups]
        for request in running:
            nodes = request.nodes
            parents = [node.parent for node in nodes[1:]]
            assert parents == nodes[:-1], "held nodes are not a path"
            assert len(nodes) <= request.num_computed // self.block_size
            lengths = [len(table.blocks) for table in request.tables]
            assert request.num_covered == min(lengths) * self.block_size
            for number, (group, table) in enumerate(zip(self.groups, request.tables, strict=True)):
                dropped = table.num_dropped
                held = [node.parts[number] for node in nodes[dropped:]]
                shared = table.blocks[dropped : len(nodes)]
                assert shared == [part.blocks for part in held], "table and nodes differ"
                assert not any(map(any, table.blocks[:dropped])), "a dropped block is in the table"
                needed = self._first_needed(group, request.num_computed)
                assert dropped <= needed, "a needed block is dropped"
                holders.update(held)
                private[number] += table.blocks[max(len(nodes), dropped) :]
        found = self._tree.nodes()
        assert all(node.children for node in found if node.is_hollow), "a hollow leaf"
        parts = [part for node in found for part in node.parts if part.blocks]
        whole = len(found) * len(self.groups)
        assert self.has_windows or len(parts) == whole, "a hollow part without a window"
        assert all(part.holders == holders[part] for part in parts), "holders miscounted"
        assert set(holders) <= set(parts), "a held part is not in the tree"
        cached = [part for part in parts if not part.holders]
        assert set(self._tree.cached) == set(cached), "cached parts miscounted"
        blocks = self._free + [block for part in parts for block in part.blocks]
        blocks += [block for own in private for entry in own for block in entry]
        assert self._num_touched <= self.num_blocks
        assert sorted(blocks) == list(range(self._num_touched)), "a block is lost or owned twice"
        for number, group in enumerate(self.groups):
            of_group = [part for part in parts if part.group == number]
            assert all(len(part.blocks) == group.num_tables for part in of_group)
            unheld = sum(1 for part in of_group if not part.holders) * group.num_tables
            all_held = (len(private[number]) + len(of_group)) * group.num_tables - unheld
            assert self._tree.num_cached[number] == unheld, "cached blocks miscounted"
            assert self._owned[number] == all_held, "owned blocks miscounted"
        assert self.num_free + self.num_cached + self.num_owned == self.num_blocks

    def _share(self, request: Request, index: int) -> Node:
        """The node of blocks just computed: of its own ones, or equal ones found in the tree."""
        parent = request.nodes[-1] if request.nodes else None
        key = request.block_key(index, self.block_size)
        node = self._tree.child(request.cache_salt, parent, key)
        if node is None:
            own = [table.blocks[index] for table in request.tables]
            return self._tree.insert(request.cache_salt, parent, key, own)
        for number, (part, table) in enumerate(zip(node.parts, request.tables, strict=True)):
            if part.blocks == HOLLOW:
                self._tree.fill(part, table.blocks[index])
                continue
            self._owned[number] += self._tree.hold(part)
            self._give_back(number, [table.blocks[index]])
            table.blocks[index] = part.blocks
            table.num_synced = min(table.num_synced, index)
        return node

    def _lacking(self, group: CacheGroup, have: int, num_computed: int, num_tokens: int) -> int:
        """Entries that a table of `have` lacks, of `num_tokens` to be computed at last.

        With a window only those of the next step are to be covered now.
        """
        reach = min(num_tokens, num_computed + self.max_step_tokens) if group.window else num_tokens
        return max(0, self.blocks_for(reach) - have)

    def _extend(self, request: Request, num_tokens: int) -> None:
        """Add what the tables lack; the caller made sure there are enough blocks."""
        for number, (group, table) in enumerate(zip(self.groups, request.tables, strict=True)):
            have = len(table.blocks)
            lacking = self._lacking(group, have, request.num_computed, num_tokens)
            table.blocks += self._take(number, lacking)
        request.num_covered = min(len(table.blocks) for table in request.tables) * self.block_size

    def _first_needed(self, group: CacheGroup, num_computed: int) -> int:
        """The first block that tokens from `num_computed` on see anything of."""
        if not group.window:
            return 0
        return max(0, num_computed + 1 - group.window) // self.block_size

    def _dropped(self, group: CacheGroup, full: int) -> int:
        """How many of `full` shared blocks a request does not hold.

        The last is always held: what is computed next hangs on it in the tree.
        """
        return max(0, min(self._first_needed(group, full * self.block_size), full - 1))

    def _usable(self, nodes: list[Node]) -> int:
        """The longest beginning of a path after which every group has what is still read."""
        if not self.has_windows:
            return len(nodes)
        best = 0
        since = [0] * len(self.groups)
        """From where on there is no hollow part."""
        for index, node in enumerate(nodes):
            is_usable = True
            for number, group in enumerate(self.groups):
                if node.parts[number].blocks == HOLLOW:
                    since[number] = index + 1
                if since[number] > self._dropped(group, index + 1):
                    is_usable = False
            if is_usable:
                best = index + 1
        return best

    def _drop(self, request: Request) -> None:
        """Let go of the blocks before each window, the first of them first to be evicted."""
        for number, (group, table) in enumerate(zip(self.groups, request.tables, strict=True)):
            first = self._first_needed(group, request.num_computed)
            if self.prefix_caching:
                first = min(first, len(request.nodes) - 1)
            if first <= table.num_dropped:
                continue
            for index in range(table.num_dropped, first):
                if index >= len(request.nodes):
                    self._give_back(number, [table.blocks[index]])
                else:
                    self._owned[number] -= self._tree.let_go(request.nodes[index].parts[number])
                table.blocks[index] = (0,) * group.num_tables
            table.num_synced = min(table.num_synced, table.num_dropped)
            table.num_dropped = first

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

    def _take(self, number: int, count: int) -> list[BlockSet]:
        """`count` entries for the table of a group, evicting where no block is free; the caller
        made sure there are enough.
        """
        if not count:
            return []
        width = self.groups[number].num_tables
        wanted = count * width
        blocks = self._free[: -wanted - 1 : -1]
        del self._free[-wanted:]
        touched = self._num_touched
        self._num_touched = min(touched + wanted - len(blocks), self.num_blocks)
        blocks += range(touched, self._num_touched)
        while len(blocks) < wanted:
            blocks += self._tree.evict()
        self._free.extend(reversed(blocks[wanted:]))
        self._owned[number] += wanted
        return [tuple(blocks[at : at + width]) for at in range(0, wanted, width)]

    def _give_back(self, number: int, entries: list[BlockSet]) -> None:
        self._free.extend(reversed([*chain.from_iterable(entries)]))
        self._owned[number] -= len(entries) * self.groups[number].num_tables
