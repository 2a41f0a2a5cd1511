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

The first of its very own may begin with a copy of a block of the tree (`Copy`), so that a prefix
hit ends at any token. What a request has filled of its last block stays cached as a tail.

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

from headrace.engine.kv.block_check import check_blocks
from headrace.engine.kv.copies import Copy
from headrace.engine.kv.kv_sizes import most_blocks_of
from headrace.engine.kv.lifetimes import Lifetimes
from headrace.engine.kv.lookup import Match, look_up
from headrace.engine.kv.prefix_tree import HOLLOW, BlockSet, Miss, Node, Part, PrefixTree
from headrace.engine.request import GroupTable, Request
from headrace.models.layer_cache import ONE_GROUP, CacheGroup

REMEMBERED_EVICTIONS = 1 << 16
"""Evicted blocks remembered, to say of a miss that a larger cache would have hit; 10 MB at most."""

REMEMBERED_PER_BLOCK = 16
"""For each block there is: a cache 16 times as large is not what a miss is about."""


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
        self.lifetimes = Lifetimes(self.groups, block_size, max_step_tokens)
        self.has_windows = any(group.window for group in groups)
        """Whether a request lets go of blocks while it runs."""
        self.num_tables = sum(group.num_tables for group in groups)
        """Blocks that `block_size` tokens take while they are inside of all windows."""
        self._num_touched = 0
        self._free: list[int] = []
        """Of the blocks below _num_touched; those from there on have never been used."""
        self._owned = [0] * len(self.groups)
        self._copies: list[Copy] = []
        self._tree = PrefixTree(
            evicted_memory=min(REMEMBERED_EVICTIONS, REMEMBERED_PER_BLOCK * num_blocks),
            num_groups=len(self.groups),
        )

    @property
    def num_free(self) -> int:
        """Blocks that hold nothing."""
        return len(self._free) + self.num_blocks - self._num_touched

    @property
    def num_touched(self) -> int:
        """Blocks from the first on that were in use at some time; the others hold no memory yet.
        Freed ones are taken before these."""
        return self._num_touched

    def num_ready(self, num_tokens: int, num_requests: int) -> int:
        """Blocks from the first on whose memory is to be there before a step of so many tokens and
        requests: those that were in use at some time, and what it takes at most."""
        ahead = self.num_tables * (self.blocks_for(num_tokens) + num_requests)
        return min(self._num_touched + ahead, self.num_blocks)

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

    @property
    def cached_by_group(self) -> dict[str, int]:
        """num_cached of each group, by its name."""
        cached = self._tree.num_cached
        return {group.name: blocks for group, blocks in zip(self.groups, cached, strict=True)}

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

    def find(self, request: Request, num_tokens: int = 0) -> Match:
        """The cached tokens `request` may start from.

        With `waits_for`, a running request is computing the block after these: come back when it is
        not pending any more. num_tokens: for which it is to be admitted; by default those it has.
        There is a copy only where its source can stay beside it.
        """
        if not self.prefix_caching:
            return Match([], 0, None, Miss("disabled", 0))
        match = look_up(self._tree, self.lifetimes, request, self.block_size)
        if match.source is not None:
            cached = sum(len(part.blocks) for part in match.source.parts if not part.holders)
            if self.missing(match, max(num_tokens, request.num_wanted), cached) > 0:
                return match.without_copy(self.block_size, "no_room")
        return match

    def admit(self, request: Request, match: Match, num_tokens: int, spare: int) -> Match | None:
        """Give `request` the matched blocks and new ones for `num_tokens` in all, or nothing.

        What it starts from: num_computed becomes what that covers. It is less than `match` where
        what was to be copied went in between. None, and nothing has changed, where fewer than
        `spare` blocks would be left free or cached.
        """
        source = match.source
        if source is not None and (source.parent is None or source.num_hollow):
            # It went for a longer one since it was found.
            match, source = match.without_copy(self.block_size, "evicted"), None
        if self.missing(match, num_tokens, spare) > 0:
            return None
        full = len(match.nodes)
        request.nodes = match.nodes
        request.num_computed = match.num_tokens
        request.tables = []
        for number, group in enumerate(self.groups):
            dropped = self.lifetimes.dropped(group, full, match.num_tokens)
            blocks: list[BlockSet] = [(0,) * group.num_tables] * dropped
            for node in match.nodes[dropped:]:
                part = node.parts[number]
                self._owned[number] += self._tree.hold(part)
                blocks.append(part.blocks)
            request.tables.append(GroupTable(blocks, dropped))
        if source is None:
            self._extend(request, num_tokens)
        else:
            for part in source.parts:
                self._tree.hold(part)  # so that its blocks are not what is taken
            self._extend(request, num_tokens)
            for part, table in zip(source.parts, request.tables, strict=True):
                self._copies += zip(part.blocks, table.blocks[full], strict=True)
                self._tree.let_go(part)
        self._announce(request)
        return match

    def take_copies(self) -> list[Copy]:
        """The copies ordered since the last call, to be made in this order before anything else is
        computed.
        """
        copies, self._copies = self._copies, []
        return copies

    def missing(self, match: Match, num_tokens: int, spare: int) -> int:
        """How many blocks too few are free or cached for `admit`; at most 0 where it would do."""
        full = len(match.nodes)
        lacking = 0
        for number, group in enumerate(self.groups):
            held = match.nodes[self.lifetimes.dropped(group, full, match.num_tokens) :]
            revived = sum(1 for node in held if not node.parts[number].holders)
            new = self.lifetimes.lacking(group, full, match.num_tokens, num_tokens)
            lacking += (new + revived) * group.num_tables
        return lacking + spare - (self.num_free + self.num_cached)

    def gains(self, requests: Iterable[Request], match: Match) -> Iterator[int]:
        """By how much `missing` of `match` would fall if these gave their blocks back, one more of
        them each time: blocks that others hold as well, or that `match` holds, are no gain.
        """
        kept = {
            node.parts[number]
            for number, group in enumerate(self.groups)
            for node in match.nodes[
                self.lifetimes.dropped(group, len(match.nodes), match.num_tokens) :
            ]
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

    def grow(self, request: Request, num_drafts: int = 0) -> bool:
        """Cover every token `request` has and so many drafts, or with a window those of the next
        step. False, with nothing changed, where no block is left.
        """
        num_tokens = request.num_coming + num_drafts
        if num_tokens <= request.num_covered:
            return True
        lacking = sum(
            self.lifetimes.lacking(group, len(table.blocks), request.num_begun, num_tokens)
            * group.num_tables
            for group, table in zip(self.groups, request.tables, strict=True)
        )
        if lacking > self.num_free + self.num_cached:
            return False
        self._extend(request, num_tokens)
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
        """Take all blocks back. Computed ones stay cached; not `keep`: only shared ones."""
        self._settle(request)
        if keep:
            self._keep_tail(request)
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
        """Count everything again from the block tables (kv/block_check.py); for tests."""
        check_blocks(self, running)

    def _share(self, request: Request, index: int) -> Node:
        """The node of blocks just computed: of its own ones, or equal ones found in the tree."""
        parent = request.nodes[-1] if request.nodes else None
        key = request.block_key(index, self.block_size)
        node = self._tree.child(request.cache_salt, parent, key)
        if node is None:
            own = [table.blocks[index] for table in request.tables]
            node = self._tree.insert(request.cache_salt, parent, key, own)
            self._forget_covered(request.cache_salt, parent, key)
            return node
        for number, (part, table) in enumerate(zip(node.parts, request.tables, strict=True)):
            if part.blocks == HOLLOW:
                self._tree.fill(part, table.blocks[index])
                continue
            self._owned[number] += self._tree.hold(part)
            self._give_back(number, [table.blocks[index]])
            table.blocks[index] = part.blocks
            table.num_synced = min(table.num_synced, index)
        self._forget_covered(request.cache_salt, parent, key)
        return node

    def _keep_tail(self, request: Request) -> None:
        """Cache the partly filled last block of a request, unless its tokens are cached already."""
        full = len(request.nodes)
        start, stop = full * self.block_size, request.num_computed
        if not self.prefix_caching or not start < stop < start + self.block_size:
            return
        parent = request.nodes[-1] if request.nodes else None
        key = request.key_of(start, stop)
        own = [table.blocks[full] for table in request.tables]
        if self._tree.insert_tail(request.cache_salt, parent, key, own):
            for number, table in enumerate(request.tables):
                self._owned[number] -= len(table.blocks.pop(full))
            self._forget_covered(request.cache_salt, parent, key)

    def _forget_covered(self, salt: str, parent: Node | None, key: bytes) -> None:
        """Free the tail that a node begins with which has all its blocks now."""
        tail = self._tree.covered_tail(salt, parent, key)
        if tail is not None:
            self._free.extend(self._tree.forget(tail))

    def _extend(self, request: Request, num_tokens: int) -> None:
        """Add what the tables lack; the caller made sure there are enough blocks."""
        for number, (group, table) in enumerate(zip(self.groups, request.tables, strict=True)):
            have = len(table.blocks)
            lacking = self.lifetimes.lacking(group, have, request.num_begun, num_tokens)
            table.blocks += self._take(number, lacking)
        request.num_covered = min(len(table.blocks) for table in request.tables) * self.block_size

    def _drop(self, request: Request) -> None:
        """Let go of the blocks before each window.

        Those of a prompt are evicted in their turn: others may have its beginning. In the middle of
        an output no prefix ends, so these go before whatever one is found by.
        """
        for number, (group, table) in enumerate(zip(self.groups, request.tables, strict=True)):
            first = self.lifetimes.first_needed(group, request.num_computed)
            if self.prefix_caching:
                first = min(first, len(request.nodes) - 1)
            if first <= table.num_dropped:
                continue
            for index in range(table.num_dropped, first):
                if index >= len(request.nodes):
                    self._give_back(number, [table.blocks[index]])
                else:
                    part = request.nodes[index].parts[number]
                    of_output = index * self.block_size >= request.num_prompt
                    self._owned[number] -= self._tree.let_go(part, first=of_output)
                table.blocks[index] = (0,) * group.num_tables
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
