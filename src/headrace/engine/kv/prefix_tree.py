"""The prefix tree: computed blocks, found by their tokens, shared by everyone who has them.

A node is the tokens of one block; its children are those seen after it, keyed by their very
tokens, so equal keys are equal tokens and no hash has to be trusted. Every cache salt has a tree of
its own. A promise says that a running request computes a node which is not there yet: others wait
for it.

A full block is shared as it is. A tail, a leaf with the tokens of a partly filled block, is copied
by whoever goes on from it and held by nobody; so is the beginning of a full block. A tail is not
the beginning of a sibling that has all its blocks: the longer one takes its place.

Of a node each group of layers has a part: the blocks of its tables. Holding a part of a group that
sees everything means holding those of all ancestors; with a window requests hold only the last
parts of their path. Parts nobody holds are cached: they stay until their blocks are needed and go
least recently used first, leaves before parents.

A part whose blocks are needed is hollow from then on, until its tokens are computed again. A node
all of whose parts are hollow stays for as long as it has children.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

TOKEN_BYTES = 4
"""Of one token id in a key."""


BlockSet = tuple[int, ...]
"""Blocks of `block_size` tokens in all layers of a group: one for each of its block tables."""

HOLLOW: BlockSet = ()
"""In place of the blocks of a part that has none."""


class Part:
    """The blocks of one group of layers in a node. `holders`: how many running requests have them
    in their block tables.
    """

    __slots__ = ("blocks", "group", "holders", "node")

    def __init__(self, node: Node, group: int, blocks: BlockSet) -> None:
        self.node = node
        self.group = group
        self.blocks = blocks
        self.holders = 1


class Node:
    """The tokens of a block in the tree, with a part for each group."""

    __slots__ = ("children", "digest", "key", "num_hollow", "parent", "parts", "promised", "whole")

    def __init__(self, parent: Node | None, key: bytes, digest: bytes) -> None:
        self.parent = parent
        self.key = key
        self.digest = digest
        """Empty for a tail."""
        self.parts: tuple[Part, ...] = ()
        self.num_hollow = 0
        """Parts without blocks."""
        self.children: dict[bytes, Node] = {}
        self.whole: list[bytes] = []
        """Keys of the children that have all their blocks, sorted: of these the one with most in
        common is beside where a key is, whatever there is of others."""
        self.promised: dict[bytes, int] = {}

    @property
    def is_tail(self) -> bool:
        """Whether its tokens are fewer than a block holds."""
        return not self.digest

    @property
    def is_hollow(self) -> bool:
        """Whether no part of it has blocks."""
        return self.num_hollow == len(self.parts)


class Promise(NamedTuple):
    """The child `key` of `node` is being computed by a running request."""

    salt: str
    node: Node
    key: bytes

    @property
    def pending(self) -> bool:
        """Whether somebody still computes it."""
        return self.key in self.node.promised


class Miss(NamedTuple):
    """The reason why a prompt was known no further.

    reason: "disabled", "too_short" (no full block before the last token, and no part of one is
    cached), "prompt_logprobs" (the logits of the whole prompt are wanted), "empty" (nothing cached
    for its salt), "salt" (cached, for another salt), "evicted", "in_flight" (computed by a request
    that comes after it, for which it does not wait), "no_room" (more is cached, but there is no
    block for a copy of it) or "no_match".
    token: index of the first token that had to be computed; for "no_match" of the first that
    differs from what is cached.
    """

    reason: str
    token: int


class Walk(NamedTuple):
    """The cached part of a prompt: its nodes from the root down, and what ended the walk, if
    anything."""

    nodes: list[Node]
    waits_for: Promise | None
    miss: Miss | None


class PrefixTree:
    """Nodes of all salts. Knows blocks by number only; the KV cache owns the numbers.

    Invariant of a group without a window: of its cached parts (`cached`, oldest first) those of
    children come before those of their parents, because a request lets go of them from the last to
    the first.
    """

    def __init__(self, evicted_memory: int, num_groups: int = 1) -> None:
        """evicted_memory: how many evicted nodes are remembered, to give a miss its reason."""
        self.cached: OrderedDict[Part, None] = OrderedDict()
        self.num_cached = [0] * num_groups
        """Blocks of the cached parts of each group."""
        self._roots: dict[str, Node] = {}
        self._first_keys: Counter[bytes] = Counter()
        self._evicted: OrderedDict[bytes, None] = OrderedDict()
        self._evicted_memory = evicted_memory

    def nearest(self, salt: str, parent: Node | None, key: bytes) -> tuple[Node, int] | None:
        """The node after `parent` that begins with most of the tokens of `key` and has all of its
        blocks, and how many tokens that is; None where there is no common token.
        """
        above = parent if parent is not None else self._roots.get(salt)
        if above is None or not key:
            return None
        at = bisect_left(above.whole, key)
        found: tuple[Node, int] | None = None
        for beside in (*above.whole[at : at + 1], *above.whole[max(0, at - 1) : at]):
            count = _common(key, beside)
            if count > (found[1] if found is not None else 0):
                found = above.children[beside], count
        return found

    def walk(self, salt: str, keys: list[bytes]) -> Walk:
        """Follow `keys` as far as there are nodes. Holds nothing."""
        root = self._roots.get(salt)
        nodes: list[Node] = []
        node = root
        for key in keys:
            child = node.children.get(key) if node is not None else None
            if child is None:
                if node is not None and key in node.promised:
                    return Walk(nodes, Promise(salt, node, key), None)
                return Walk(nodes, None, self._explain(salt, node, key, len(nodes)))
            nodes.append(child)
            node = child
        return Walk(nodes, None, None)

    def hold(self, part: Part) -> int:
        """Add a holder; how many blocks were cached before (nobody else's) and are not now."""
        part.holders += 1
        if part.holders > 1:
            return 0
        del self.cached[part]
        self.num_cached[part.group] -= len(part.blocks)
        return len(part.blocks)

    def let_go(self, part: Part, *, first: bool = False) -> int:
        """Take a holder away, of a path from its last node up; how many blocks are cached now.

        first: it is to be evicted before all others.
        """
        part.holders -= 1
        if part.holders:
            return 0
        self.cached[part] = None
        if first:
            self.cached.move_to_end(part, last=False)
        self.num_cached[part.group] += len(part.blocks)
        return len(part.blocks)

    def child(self, salt: str, parent: Node | None, key: bytes) -> Node | None:
        """The node after `parent` (None: the first of its salt), if there is one."""
        node = parent if parent is not None else self._roots.get(salt)
        return node.children.get(key) if node is not None else None

    def insert(
        self, salt: str, parent: Node | None, key: bytes, blocks: Sequence[BlockSet]
    ) -> Node:
        """Make a node of each group's `blocks` after `parent`, where there is none. Its caller
        holds all parts.
        """
        above = parent if parent is not None else self._root(salt)
        node = self._attach(above, key, _digest(above, key), blocks)
        if parent is None:
            self._first_keys[key] += 1
        self._evicted.pop(node.digest, None)
        return node

    def insert_tail(
        self, salt: str, parent: Node | None, key: bytes, blocks: Sequence[BlockSet]
    ) -> bool:
        """Cache a block that is filled with the tokens of `key` only. False, and nothing is kept,
        where some node after `parent` begins with these tokens already; that counts as used.
        """
        above = parent if parent is not None else self._root(salt)
        at = bisect_left(above.whole, key)
        for beside in above.whole[at : at + 1]:
            if beside.startswith(key):
                for part in above.children[beside].parts:
                    self.touch(part)
                return False
        for part in self._attach(above, key, b"", blocks).parts:
            self.let_go(part)
        return True

    def covered_tail(self, salt: str, parent: Node | None, key: bytes) -> Node | None:
        """The tail after `parent` that is the beginning of `key`, whose place a node takes."""
        above = parent if parent is not None else self._roots.get(salt)
        at = bisect_left(above.whole, key) if above is not None else 0
        if above is None or not at or not key.startswith(above.whole[at - 1]):
            return None
        return above.children[above.whole[at - 1]]

    def touch(self, part: Part) -> None:
        """Make a cached part the one that is evicted last."""
        if not part.holders:
            self.cached.move_to_end(part)

    def promise(self, salt: str, parent: Node | None, key: bytes) -> Promise | None:
        """Announce the node after `parent`; None where it is there already with all its blocks."""
        node = parent if parent is not None else self._root(salt)
        child = node.children.get(key)
        if child is not None and not child.num_hollow:
            return None
        node.promised[key] = node.promised.get(key, 0) + 1
        return Promise(salt, node, key)

    def promised(self, salt: str, parent: Node | None, key: bytes) -> Promise | None:
        """The promise of the node after `parent`, if somebody computes it."""
        node = parent if parent is not None else self._roots.get(salt)
        if node is None or key not in node.promised:
            return None
        return Promise(salt, node, key)

    def settle(self, promise: Promise) -> None:
        """Take a promise back, kept or not; who waited for it looks again."""
        promised = promise.node.promised
        promised[promise.key] -= 1
        if not promised[promise.key]:
            del promised[promise.key]
        self._drop_if_empty(promise.salt)

    def evict(self, *, remember: bool = True) -> BlockSet:
        """Take the blocks of the cached part longest unused; KeyError if none is. Of a tail they
        are those of all its parts, which are of no use apart.

        remember: that it was there, to say so of a miss.
        """
        part, _ = self.cached.popitem(last=False)
        if part.node.is_tail:
            self.cached[part] = None
            return tuple(self.forget(part.node))
        if remember:
            self._evicted[part.node.digest] = None
            if len(self._evicted) > self._evicted_memory:
                self._evicted.popitem(last=False)
        return self._empty(part)

    def fill(self, part: Part, blocks: BlockSet) -> None:
        """Give a hollow part blocks again. Its caller holds it."""
        node = part.node
        part.blocks = blocks
        part.holders = 1
        node.num_hollow -= 1
        if not node.num_hollow:
            insort(_above(node).whole, node.key)
        self._evicted.pop(node.digest, None)

    def forget(self, node: Node) -> list[int]:
        """Drop what is cached of a node without children as if it had never been; its blocks."""
        forgotten: list[int] = []
        for part in node.parts:
            if part.blocks and not part.holders:
                del self.cached[part]
                forgotten += self._empty(part)
        return forgotten

    def nodes(self) -> list[Node]:
        """All nodes, for checks."""
        found = []
        stack = [child for root in self._roots.values() for child in root.children.values()]
        while stack:
            node = stack.pop()
            found.append(node)
            stack.extend(node.children.values())
        return found

    def _attach(self, above: Node, key: bytes, digest: bytes, blocks: Sequence[BlockSet]) -> Node:
        node = Node(above, key, digest)
        node.parts = tuple(Part(node, group, part) for group, part in enumerate(blocks))
        above.children[key] = node
        insort(above.whole, key)
        return node

    def _root(self, salt: str) -> Node:
        root = self._roots.get(salt)
        if root is None:
            root = self._roots[salt] = _root_node(salt)
        return root

    def _empty(self, part: Part) -> BlockSet:
        """Make a part hollow that is not cached any more; the blocks it had."""
        blocks, node = part.blocks, part.node
        self.num_cached[part.group] -= len(blocks)
        part.blocks = HOLLOW
        if not node.num_hollow:
            whole = _above(node).whole
            del whole[bisect_left(whole, node.key)]
        node.num_hollow += 1
        if not node.children and node.is_hollow:
            self._detach(node)
        return blocks

    def _detach(self, node: Node) -> None:
        """Take a leaf out, and those above it that are hollow and leaves without it."""
        while True:
            assert not node.children, "only leaves leave the tree"
            above = _above(node)
            del above.children[node.key]
            node.parent = None
            if above.parent is None and not node.is_tail:
                self._first_keys[node.key] -= 1
                if not self._first_keys[node.key]:
                    del self._first_keys[node.key]
            if above.parent is None:
                self._drop_if_empty(above.key.decode("utf-8", "surrogatepass"))
                return
            if above.children or not above.is_hollow:
                return
            node = above

    def _drop_if_empty(self, salt: str) -> None:
        """Salts come from requests without end; a root stays only while something hangs on it."""
        root = self._roots.get(salt)
        if root is not None and not root.children and not root.promised:
            del self._roots[salt]

    def _explain(self, salt: str, node: Node | None, key: bytes, depth: int) -> Miss:
        known = depth * (len(key) // TOKEN_BYTES)
        above = node if node is not None else _root_node(salt)
        if _digest(above, key) in self._evicted:
            return Miss("evicted", known)
        if depth == 0 and key in self._first_keys:
            return Miss("salt", known)
        if depth == 0 and not above.children:
            return Miss("empty", known)
        at = bisect_left(above.whole, key)
        beside = above.whole[max(0, at - 1) : at + 1]
        return Miss("no_match", known + max((_common(key, other) for other in beside), default=0))


def _root_node(salt: str) -> Node:
    name = salt.encode("utf-8", "surrogatepass")
    return Node(None, name, blake2b(name, digest_size=16).digest())


def _above(node: Node) -> Node:
    assert node.parent is not None, "the root of a salt has no blocks"
    return node.parent


def _digest(above: Node, key: bytes) -> bytes:
    """Names a path of blocks; only used to remember what was evicted, never to find a block."""
    return blake2b(above.digest + key, digest_size=16).digest()


def _common(key: bytes, other: bytes) -> int:
    """How many tokens two keys have in common at their beginning."""
    length = min(len(key), len(other))
    difference = int.from_bytes(key[:length], "big") ^ int.from_bytes(other[:length], "big")
    return (length - (difference.bit_length() + 7) // 8) // TOKEN_BYTES
