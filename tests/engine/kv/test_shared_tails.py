"""A partly filled last block is shared too, copied on write: a hit ends at any token."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from headrace.config.settings import EngineConfig
from headrace.engine.core import EngineCore
from headrace.engine.kv.copies import Copy, apart
from headrace.engine.kv.kv_cache import KVCache
from headrace.engine.kv.lifetimes import Lifetimes
from headrace.engine.kv.prefix_tree import HOLLOW, Miss, Node, Part, PrefixTree
from headrace.engine.messages import Submit
from headrace.engine.params import SamplingParams
from headrace.engine.request import Request
from headrace.models import load_model
from headrace.models.layer_cache import CacheGroup
from tests.engine.expected import answer
from tests.engine.mock import MockModel, drain, make_core, real_ops, submit
from tests.tiny import NUM_TOKENS, tiny_checkpoint

BLOCK = 16
PROMPT = [(7 * i + i // 5) % 40 for i in range(80)]
WINDOWS = [(0,), (20,), (0, 20), (40, 0, 40)]


@pytest.mark.parametrize("windows", WINDOWS)
def test_a_hit_of_every_length_gives_the_same_tokens(windows: tuple[int, ...]) -> None:
    """Of 1 token to 3 blocks: of a tail, of a full block, and of the beginning of either."""
    model = MockModel(windows=windows)
    for cached in range(1, 3 * BLOCK + 1):
        core = make_core(model, num_gpu_blocks_override=40 * len(windows))
        core.submit(submit("before", PROMPT[:cached], max_tokens=0))
        drain(core)
        goes_on = submit("goes on", [*PROMPT[:cached], 39, 38])
        again = submit("again", PROMPT[:cached])
        for request, hit in ((goes_on, cached), (again, cached - 1)):
            model.computed.clear()
            core.submit(request)
            collected = drain(core)[request.request_id]
            assert collected.outputs[0].cached_tokens == hit
            assert model.computed[0] == (hit, request.prompt_token_ids[hit])
            expected = answer(request, windows=windows)
            assert (collected.token_ids, collected.finish_reason) == expected


@pytest.mark.parametrize("windows", WINDOWS)
def test_a_conversation_computes_nothing_but_what_is_new(windows: tuple[int, ...]) -> None:
    model = MockModel(windows=windows)
    core = make_core(model, num_gpu_blocks_override=80 * len(windows))
    text = PROMPT[:21]
    for turn in range(6):
        one = submit(f"turn {turn}", text, max_tokens=9 + turn)
        core.submit(one)
        collected = drain(core)[one.request_id]
        assert collected.token_ids == answer(one, windows=windows)[0]
        # The last token of an answer is drawn, not computed.
        assert collected.outputs[0].cached_tokens == (len(text) - 5 if turn else 0)
        text = [*text, *collected.token_ids, *(turn + i for i in range(4))]
    core.submit(submit("again", text[:-4], max_tokens=1))
    assert drain(core)["again"].outputs[0].cached_tokens == len(text) - 5


def test_several_go_on_from_one_tail_at_once_and_leave_it_as_it_was() -> None:
    core = make_core(num_gpu_blocks_override=80)
    core.submit(submit("before", PROMPT[:25], max_tokens=0))
    drain(core)
    requests = [submit(str(i), [*PROMPT[:25], i], max_tokens=30, seed=i) for i in range(6)]
    for request in [*requests, submit("last", [*PROMPT[:25], 30], max_tokens=20)]:
        core.submit(request)
    results = drain(core)
    for request in requests:
        collected = results[request.request_id]
        assert collected.outputs[0].cached_tokens == 25
        assert collected.token_ids == answer(request)[0]


@pytest.mark.parametrize("backend", ["cpu", pytest.param("reference", marks=pytest.mark.load)])
@pytest.mark.parametrize("family", ["qwen3", "gemma3_text"])
def test_on_real_arithmetic_a_hit_of_every_length_gives_the_same_bits(
    backend: str, family: str
) -> None:
    ops = real_ops(backend)
    model = load_model(tiny_checkpoint(family, "BF16", logit_scale=2.0), ops)  # type: ignore[arg-type]
    rng = random.Random(3)
    text = [rng.randrange(256) for _ in range(3 * BLOCK + 2)]
    config = EngineConfig(
        num_gpu_blocks_override=96 * model.cache_layout.num_tables,
        block_size=BLOCK,
        max_num_batched_tokens=32,
        speculative_config="none",
    )
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, logprobs=2)

    def core_of() -> EngineCore:
        return EngineCore(model, ops, config, num_tokens=NUM_TOKENS)

    alone = core_of()
    warm = core_of()
    for length in range(1, 3 * BLOCK + 1):
        warm.reset_prefix_cache()
        alone.reset_prefix_cache()
        reads = SamplingParams(temperature=0, max_tokens=0)
        warm.submit(Submit("before", text[:length], reads))
        drain(warm)
        request = Submit("after", [*text[:length], 7], params)
        for core in (alone, warm):
            core.submit(request)
        expected, found = drain(alone)["after"], drain(warm)["after"]
        assert found.outputs[0].cached_tokens == length
        assert found.token_ids == expected.token_ids
        assert [output.logprobs for output in found.outputs] == [
            output.logprobs for output in expected.outputs
        ]


def request_of(tokens: list[int], name: str = "r", max_len: int = 200) -> Request:
    return Request(name, tokens, len(tokens), SamplingParams(), max_len)


def computed(kv: KVCache, tokens: list[int]) -> None:
    """Let a request in, compute all of its tokens and let it go."""
    request = request_of(tokens)
    assert kv.admit(request, kv.find(request), len(tokens), 0)
    kv.take_copies()
    request.num_computed = len(tokens)
    kv.commit(request)
    kv.release(request)
    kv.check([])


def keys(kv: KVCache) -> list[int]:
    """How many tokens each node has."""
    return sorted(len(node.key) // 4 for node in kv._tree.nodes())


def test_a_longer_tail_takes_the_place_of_a_shorter_one() -> None:
    kv = KVCache(20, 4)
    computed(kv, [1, 2, 3, 4, 5])
    assert (keys(kv), kv.num_cached) == ([1, 4], 2)
    computed(kv, [1, 2, 3, 4, 5, 6, 7])
    assert (keys(kv), kv.num_cached) == ([3, 4], 2)
    computed(kv, [1, 2, 3, 4, 5, 6])
    assert (keys(kv), kv.num_cached) == ([3, 4], 2), "it is the beginning of a longer one"
    computed(kv, [1, 2, 3, 4, 5, 9])
    assert (keys(kv), kv.num_cached) == ([2, 3, 4], 3)
    computed(kv, [1, 2, 3, 4, 5, 6, 7, 8])
    assert (keys(kv), kv.num_cached) == ([2, 4, 4], 3)
    assert kv.forget_cached() == 3
    assert not kv._tree._roots


def test_the_copy_is_of_the_node_with_most_in_common() -> None:
    kv = KVCache(400, 8)
    rng = random.Random(8)
    texts = [[rng.randrange(3) for _ in range(rng.randint(1, 8))] for _ in range(60)]
    for text in texts:
        computed(kv, text)
    for _ in range(200):
        wanted = [rng.randrange(3) for _ in range(rng.randint(2, 8))]
        longest = max(
            next((i for i, (a, b) in enumerate(pairwise_of(text, wanted)) if a != b), len(text))
            for text in texts
        )
        request = request_of([*wanted, 9])
        assert kv.find(request).num_tokens == longest


def pairwise_of(text: list[int], other: list[int]) -> list[tuple[int, int]]:
    """Tokens of both, side by side, and after the shorter one what differs."""
    return [*zip(text, other, strict=False), (-1, -2)]


def test_a_pool_without_room_for_the_source_serves_without_the_copy() -> None:
    kv = KVCache(4, 4)
    computed(kv, [1, 2, 3, 4, 5, 6])
    request = request_of([1, 2, 3, 4, 5, 6, *range(20, 30)])
    match = kv.find(request)
    assert (match.num_tokens, match.source) == (4, None)
    assert match.miss == Miss("no_room", 4)
    assert kv.admit(request, match, 16, 0) == match
    kv.check([request])
    assert kv.take_copies() == []


def test_a_prompt_shorter_than_a_block_says_too_that_there_is_no_room_for_the_copy() -> None:
    kv = KVCache(1, 4)
    computed(kv, [1, 2])
    match = kv.find(request_of([1, 2, 3]))
    assert (match.num_tokens, match.miss) == (0, Miss("no_room", 0))


def test_a_source_that_went_for_a_longer_one_is_not_copied() -> None:
    kv = KVCache(20, 4)
    computed(kv, [1, 2, 3, 4, 5, 6])
    request = request_of([1, 2, 3, 4, 5, 6, 9])
    match = kv.find(request)
    assert match.num_tokens == 6
    computed(kv, [1, 2, 3, 4, 5, 6, 7])
    start = kv.admit(request, match, 7, 0)
    assert start is not None and (start.num_tokens, start.miss) == (4, Miss("evicted", 4))
    assert request.num_computed == 4
    assert kv.take_copies() == []
    kv.check([request])


def with_a_hollow_block() -> KVCache:
    """1 to 8 are cached in blocks of 4, of which the second is gone in one group of two."""
    groups = [CacheGroup(0, (0,), 1), CacheGroup(8, (1,), 1)]
    kv = KVCache(20, 4, groups=groups, max_step_tokens=16)
    computed(kv, [1, 2, 3, 4, 5, 6, 7, 8])
    kv._free.extend(kv._tree.evict())
    kv.check([])
    return kv


def test_a_tail_goes_when_the_sibling_it_begins_has_all_its_blocks_again() -> None:
    kv = with_a_hollow_block()
    computed(kv, [1, 2, 3, 4, 5, 6])
    assert (keys(kv), kv.num_cached) == ([2, 4, 4], 5)
    computed(kv, [1, 2, 3, 4, 5, 6, 7, 8])
    assert (keys(kv), kv.num_cached) == ([4, 4], 4)


def test_in_place_of_a_block_that_is_gone_the_beginning_of_a_sibling_is_copied() -> None:
    kv = with_a_hollow_block()
    computed(kv, [1, 2, 3, 4, 5, 6, 7])
    match = kv.find(request_of([1, 2, 3, 4, 5, 6, 7, 8, 9]))
    assert (match.num_tokens, match.miss) == (7, Miss("evicted", 7))


def key_of(*tokens: int) -> bytes:
    return b"".join(token.to_bytes(4, "little") for token in tokens)


def with_hollow_children(lasts: range) -> PrefixTree:
    """Blocks 1, 2, 3, x, of which one group of two has lost its part."""
    tree = PrefixTree(evicted_memory=8, num_groups=2)
    for last in lasts:
        node = tree.insert("", None, key_of(1, 2, 3, last), [(last,), (100 + last,)])
        tree.let_go(node.parts[0])
        assert tree.evict() == (last,)
    return tree


def test_among_any_number_of_hollow_siblings_the_whole_one_is_found() -> None:
    tree = with_hollow_children(range(10, 60))
    assert tree.nearest("", None, key_of(1, 2, 3, 35)) is None
    assert tree.insert_tail("", None, key_of(1, 2), [(0,), (1,)])
    assert tree.insert_tail("", None, key_of(1, 2, 3), [(2,), (3,)])
    shorter = tree.covered_tail("", None, key_of(1, 2, 3))
    assert shorter is not None and tree.forget(shorter) == [0, 1]
    found = tree.nearest("", None, key_of(1, 2, 3, 35))
    assert found is not None and (found[0].key, found[1]) == (key_of(1, 2, 3), 3)
    tail = tree.covered_tail("", None, key_of(1, 2, 3, 70))
    assert tail is not None and tail.key == key_of(1, 2, 3)


def test_what_a_later_sibling_begins_with_is_not_kept_again() -> None:
    tree = with_hollow_children(range(10, 12))
    tree.insert("", None, key_of(1, 2, 3, 12), [(12,), (112,)])
    assert not tree.insert_tail("", None, key_of(1, 2, 3), [(2,), (3,)])


def test_a_tail_is_evicted_whole_and_before_what_it_hangs_on() -> None:
    groups = [CacheGroup(0, (0,), 1), CacheGroup(8, (1, 2), 2)]
    kv = KVCache(9, 4, groups=groups, max_step_tokens=16)
    computed(kv, [1, 2, 3, 4, 5, 6])
    assert kv.num_cached == 6
    # One entry of three blocks is free; the second is what the tail had.
    other = request_of([9] * 7)
    assert kv.admit(other, kv.find(other), 7, 0)
    kv.check([other])
    assert keys(kv) == [4]
    assert not any(node.is_tail for node in kv._tree.nodes())


@pytest.mark.parametrize("seed", range(20))
def test_copies_apart_give_what_they_give_one_after_another(seed: int) -> None:
    rng = random.Random(seed)
    copies: list[Copy] = [(rng.randrange(8), rng.randrange(8)) for _ in range(rng.randint(0, 12))]
    one_by_one, at_once = list(range(8)), list(range(8))
    for source, target in copies:
        one_by_one[target] = one_by_one[source]
    runs = apart(copies)
    assert [copy for run in runs for copy in run] == copies
    for run in runs:
        read = [at_once[source] for source, _ in run]
        for (_, target), value in zip(run, read, strict=True):
            at_once[target] = value
        targets = [target for _, target in run]
        assert len(set(targets)) == len(targets)
    assert at_once == one_by_one


def test_copies_that_chain_are_made_in_their_order() -> None:
    assert apart([(1, 2), (3, 4), (2, 5), (6, 1)]) == [[(1, 2), (3, 4)], [(2, 5), (6, 1)]]
    assert apart([(1, 2), (3, 1)]) == [[(1, 2)], [(3, 1)]]
    assert apart([]) == []


def usable_slowly(groups: list[CacheGroup], size: int, nodes: list[Node]) -> int:
    """The longest beginning after which every group has all that its layers read."""
    for length in range(len(nodes), 0, -1):
        first = [max(0, length * size + 1 - group.window) // size * bool(group.window)
                 for group in groups]  # fmt: skip
        if all(
            node.parts[number].blocks != HOLLOW
            for number in range(len(groups))
            for node in nodes[min(first[number], length - 1) : length]
        ):
            return length
    return 0


@pytest.mark.parametrize("seed", range(30))
def test_what_is_usable_of_a_path_is_what_looking_at_each_block_finds(seed: int) -> None:
    rng = random.Random(seed)
    groups = [CacheGroup(rng.choice([0, 4, 9, 30])) for _ in range(rng.randint(1, 3))]
    rules = Lifetimes(groups, 4, 16)
    for share in (0.0, 0.1, 0.4, 0.8):
        nodes = []
        for _ in range(rng.randint(0, 20)):
            node = Node(None, b"", b"x")
            node.parts = tuple(
                Part(node, number, HOLLOW if rng.random() < share else (1,))
                for number in range(len(groups))
            )
            node.num_hollow = sum(part.blocks == HOLLOW for part in node.parts)
            nodes.append(node)
        assert rules.usable(nodes) == usable_slowly(groups, 4, nodes)


def test_a_tail_is_found_among_many_siblings() -> None:
    tree = PrefixTree(evicted_memory=8)
    for first in range(300):
        key = b"".join(token.to_bytes(4, "little") for token in (first, first + 1, 5))
        assert tree.insert_tail("", None, key, [(first,)])
    for first in range(300):
        key = b"".join(token.to_bytes(4, "little") for token in (first, first + 1, 9, 9))
        found = tree.nearest("", None, key)
        assert found is not None
        node, count = found
        assert (node.parts[0].blocks, count) == ((first,), 2)
    orders = [node.whole for node in tree._roots.values()]
    assert all(a < b for order in orders for a, b in pairwise(order))
