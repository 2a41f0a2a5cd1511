"""The tree by itself: least recently used first, leaves before parents, salts apart."""

from __future__ import annotations

import random

import pytest

from headrace.engine.kv.prefix_tree import Miss, Node, PrefixTree, Promise


def key(*tokens: int) -> bytes:
    return b"".join(token.to_bytes(4, "little") for token in tokens)


def path(tree: PrefixTree, keys: list[bytes], blocks: list[int], salt: str = "") -> list[Node]:
    """Make and hold the nodes of a path, those there already included."""
    nodes: list[Node] = []
    for each, block in zip(keys, blocks, strict=True):
        parent = nodes[-1] if nodes else None
        node = tree.child(salt, parent, each)
        if node is None:
            node = tree.insert(salt, parent, each, [(block,)])
        else:
            tree.hold(node.parts[0])
        nodes.append(node)
    return nodes


def let_go(tree: PrefixTree, nodes: list[Node]) -> None:
    for node in reversed(nodes):
        tree.let_go(node.parts[0])


def test_leaves_go_before_parents_and_old_before_new() -> None:
    tree = PrefixTree(evicted_memory=8)
    a = path(tree, [key(1), key(2), key(3)], [1, 2, 3])
    b = path(tree, [key(1), key(9)], [0, 9])
    let_go(tree, a)
    let_go(tree, b)
    assert [tree.evict() for _ in range(4)] == [(3,), (2,), (9,), (1,)]
    with pytest.raises(KeyError):
        tree.evict()


def test_use_makes_a_whole_path_young_again() -> None:
    tree = PrefixTree(evicted_memory=8)
    a = path(tree, [key(1), key(2)], [1, 2])
    b = path(tree, [key(5), key(6)], [5, 6])
    let_go(tree, a)
    let_go(tree, b)
    for node in a:
        assert tree.hold(node.parts[0]) == 1
    let_go(tree, a)
    assert [tree.evict() for _ in range(4)] == [(6,), (5,), (2,), (1,)]


def test_what_is_held_is_never_evicted() -> None:
    tree = PrefixTree(evicted_memory=8)
    held = path(tree, [key(1)], [1])
    let_go(tree, path(tree, [key(1), key(2)], [0, 2]))
    assert tree.evict() == (2,)
    with pytest.raises(KeyError):
        tree.evict()
    assert held[0].parts[0].holders == 1


def test_a_walk_stops_at_a_promise_and_goes_on_when_it_is_kept() -> None:
    tree = PrefixTree(evicted_memory=8)
    keys = [key(1), key(2), key(3)]
    nodes = path(tree, keys[:1], [1])
    promise = tree.promise("", nodes[0], keys[1])
    assert promise is not None
    walk = tree.walk("", keys)
    assert (walk.nodes, walk.miss) == (nodes, None)
    assert walk.waits_for == promise
    assert promise.pending
    tree.settle(promise)
    nodes.append(tree.insert("", nodes[0], keys[1], [(2,)]))
    assert not promise.pending
    assert tree.walk("", keys[:2]) == (nodes, None, None)
    assert tree.promise("", nodes[0], keys[1]) is None, "it is there already"


def test_a_promise_made_twice_is_pending_until_both_are_settled() -> None:
    tree = PrefixTree(evicted_memory=8)
    first, second = (tree.promise("", None, key(1)) for _ in range(2))
    assert isinstance(first, Promise)
    assert isinstance(second, Promise)
    tree.settle(first)
    assert second.pending
    tree.settle(second)
    assert not second.pending
    assert tree.walk("", [key(1)]).miss == Miss("empty", 0)


def test_roots_of_salts_do_not_pile_up() -> None:
    tree = PrefixTree(evicted_memory=8)
    for i in range(100):
        salt = f"salt {i}"
        promise = tree.promise(salt, None, key(1))
        assert promise is not None
        tree.settle(promise)
        let_go(tree, path(tree, [key(1)], [i], salt))
        tree.evict()
    assert not tree._roots
    assert not tree._first_keys
    assert len(tree._evicted) == 8


def test_misses_have_reasons() -> None:
    tree = PrefixTree(evicted_memory=8)
    assert tree.walk("", [key(1, 2)]).miss == Miss("empty", 0)
    nodes = path(tree, [key(1, 2), key(3, 4)], [1, 2])
    assert tree.walk("", [key(1, 9)]).miss == Miss("no_match", 1)
    assert tree.walk("", [key(1, 2), key(3, 9)]).miss == Miss("no_match", 3)
    assert tree.walk("", [key(1, 2), key(3, 4), key(5, 6)]).miss == Miss("no_match", 4)
    assert tree.walk("other", [key(1, 2)]).miss == Miss("salt", 0)
    assert tree.walk("other", [key(1, 9)]).miss == Miss("empty", 0)
    let_go(tree, nodes)
    tree.evict()
    assert tree.walk("", [key(1, 2), key(3, 4)]).miss == Miss("evicted", 2)
    tree.evict()
    assert tree.walk("", [key(1, 2)]).miss == Miss("evicted", 0)
    path(tree, [key(1, 2)], [3])
    assert tree.walk("", [key(1, 2), key(3, 4)]).miss == Miss("evicted", 2)


def test_random_use_evicts_what_a_plain_least_recently_used_model_evicts() -> None:
    """The model: every path remembers when it was last let go; evict the oldest leaf there is."""
    rng = random.Random(4)
    tree = PrefixTree(evicted_memory=8)
    last_use: dict[tuple[bytes, ...], float] = {}
    block_of: dict[tuple[bytes, ...], int] = {}
    held: list[tuple[tuple[bytes, ...], list[Node]]] = []
    for now in range(1, 4000):
        action = rng.random()
        if action < 0.4:
            keys = tuple(key(rng.randrange(3)) for _ in range(rng.randint(1, 5)))
            nodes = path(tree, list(keys), [now * 10 + i for i in range(len(keys))])
            for i, node in enumerate(nodes):
                (block_of[keys[: i + 1]],) = node.parts[0].blocks
            held.append((keys, nodes))
        elif action < 0.7 and held:
            keys, nodes = held.pop(rng.randrange(len(held)))
            let_go(tree, nodes)
            for i in range(len(keys)):  # of one path let go at once, the leaf counts as older
                last_use[keys[: i + 1]] = now + 0.5 - i / 10
        elif tree.cached:
            in_use = {keys[: i + 1] for keys, _ in held for i in range(len(keys))}
            leaves = [
                each for each in block_of
                if each not in in_use
                and not any(other[:-1] == each for other in block_of)
            ]  # fmt: skip
            oldest = min(leaves, key=lambda one: last_use[one])
            assert tree.evict() == (block_of.pop(oldest),)
