"""A model without arithmetic whose answers show whether the engine's blocks are right.

"K and V" of a token are one 64-bit state made of the state before it, read through the block table,
of the token and of its position. The logits of a token are a function of the states of all
positions up to it, read through the block table as well. A wrong, stale or early block anywhere
gives
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from headrace.config.settings import EngineConfig
from headrace.engine.core import EngineCore
from headrace.engine.drafts.heads.head_drafts import HeadDrafts
from headrace.engine.drafts.model.draft_model import DraftModelChain
from headrace.engine.drafts.passes.draft_chain import DraftChain
from headrace.engine.drafts.proposer import Proposer
from headrace.engine.memory.kv_memory import plan_kv_cache
from headrace.engine.messages import Output, Submit, TokenLogprob
from headrace.engine.params import SamplingParams
from headrace.models.cost import CostModel, LayerCost
from headrace.models.layer_cache import CacheLayout, LayerKV, cache_layout
from headrace.ops import adjustment, make_ops
from headrace.ops.interface import Ops
from headrace.ops.kv import AttentionShape, KVCacheArrays, KVCacheSpec, RaggedBatch
from headrace.ops.reference import sampling
from headrace.ops.sampling_rows import (
    LogitsEdit,
    SamplingRows,
    TopLogprobs,
)
from headrace.structured.vocabulary import Vocabulary

VOCAB = 48
NUM_TOKENS = 40
EOS = 7
_MASK = (1 << 64) - 1


def mix(state: int, token_id: int, position: int) -> int:
    """The state after one more token (splitmix64's finisher)."""
    value = (state + 0x9E3779B97F4A7C15 * (token_id + 1) + 0xD1342543DE82EF95 * position) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def logits_of(*layers: npt.NDArray[np.uint64]) -> npt.NDArray[np.float32]:
    """f32[VOCAB] of the states of the positions that each layer sees."""
    seed = 0
    for index, states in enumerate(layers):
        seed ^= _seen(states) * (2 * index + 1) & _MASK
    return _drawn(seed).copy()


def _seen(states: npt.NDArray[np.uint64]) -> int:
    """What the states of positions from 0 on come to."""
    order = np.arange(1, len(states) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return int(np.bitwise_xor.reduce(states * (order | np.uint64(1))))


@lru_cache(maxsize=1 << 14)
def _drawn(seed: int) -> npt.NDArray[np.float32]:
    """Kept, because the engine and what it is held against need the same ones."""
    logits = np.random.default_rng(seed).standard_normal(VOCAB).astype(np.float32) * 2
    logits[NUM_TOKENS:] = 50  # padding: must never be taken
    return logits


class MockOps:
    """The few operations an engine calls itself."""

    name, level, num_threads = "mock", "mock", 1
    populated = 0
    """Blocks whose memory was asked for."""

    def memory(self) -> None:
        """That of this machine."""

    expert_layers = 0
    recording = "none"
    is_asynchronous = False

    def expert_cache_stats(self) -> None:
        return None

    def fault_of(self, error: Exception) -> str | None:
        return "memory" if isinstance(error, MemoryError) else None

    def wait_for(self, x: object) -> None:
        """It computes at once."""

    def release_memory(self) -> None:
        """It keeps none."""

    def kv_cache(self, spec: KVCacheSpec) -> KVCacheArrays:
        layers = 1 + max(place.index for place in spec.places if place is not None)
        return KVCacheArrays(spec, np.zeros((layers, spec.num_blocks, spec.block_size), np.uint64))

    def kv_copy(self, kv: KVCacheArrays, pairs: npt.NDArray[np.int32]) -> None:
        sources, targets = pairs.T
        assert not {*sources.tolist()} & {*targets.tolist()}, "the order of copies would matter"
        assert len({*targets.tolist()}) == len(targets)
        kv.arrays[:, targets] = kv.arrays[:, sources]

    def kv_populate(self, kv: KVCacheArrays, num_blocks: int, *, wait: bool = False) -> None:
        self.populated = max(self.populated, num_blocks)

    def host(self, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        return x

    def take_rows(self, x: npt.NDArray[np.float32], rows: npt.NDArray[np.int32]) -> object:
        return x[rows]

    def stacked(self, parts: Sequence[npt.NDArray[np.float32]]) -> object:
        return np.concatenate(parts)

    def adjust(self, logits: npt.NDArray[np.float32], adjustments: list[LogitsEdit]) -> None:
        adjustment.adjust(logits, adjustments)

    def sample(
        self, logits: npt.NDArray[np.float32], rows: SamplingRows, num_tokens: int
    ) -> npt.NDArray[np.int32]:
        return sampling.sample(logits, rows, num_tokens)

    def top_logprobs(
        self,
        logits: npt.NDArray[np.float32],
        chosen: npt.NDArray[np.int32],
        k: int,
        num_tokens: int,
    ) -> TopLogprobs:
        return sampling.top_logprobs(logits, chosen, k, num_tokens)


@dataclass
class MockModel:
    """Counts what it computes. nan_on, raise_on: tokens that spoil a row's logits, or the step.

    raise_on_rows: requests in a batch that it cannot compute together. most_tokens: of a batch for
    which it has memory. windows: of each of its
    layers, the positions whose states the logits see, at least 2 (a state is made of the one before
    it); 0 for all.
    """

    max_positions: int = 4096
    length_cause: str = ""
    model_type: str = "mock"
    vocab_size: int = VOCAB
    weight_codec: str = "F32"
    weight_bytes: int = 0
    windows: tuple[int, ...] = (0,)
    nan_on: int = -1
    raise_on: int = -1
    raise_on_rows: int = 1 << 30
    most_tokens: int = 1 << 30
    steps: int = 0
    computed: list[tuple[int, int]] = field(default_factory=list)
    """(position, token id) of everything computed."""
    batches: list[RaggedBatch] = field(default_factory=list)

    @property
    def cache_layout(self) -> CacheLayout:
        return cache_layout([LayerKV(1, 2, window) for window in self.windows])

    def cost(self, kv: KVCacheSpec) -> CostModel:
        return CostModel(
            weight_bytes=100,
            layer_elements=10,
            head_elements=1,
            layers=[LayerCost(AttentionShape(1, 1, 2, 1.0, window), 16) for window in self.windows],
        )

    def forward(self, batch: RaggedBatch, kv: KVCacheArrays) -> npt.NDArray[np.float32]:
        self.steps += 1
        self.batches.append(batch)
        size, layers = kv.spec.block_size, range(len(self.windows))
        places = [kv.spec.place(layer) for layer in layers]
        tables = [batch.block_table(place) for place in places]
        arrays = [kv.arrays[place.index] for place in places]
        owners = np.repeat(np.arange(len(batch.query_start) - 1), np.diff(batch.query_start))
        if len(batch.token_ids) > self.most_tokens:
            raise MemoryError(f"no memory for {len(batch.token_ids)} tokens")
        if self.raise_on in batch.token_ids:
            raise RuntimeError("this token cannot be computed")
        if batch.num_requests >= self.raise_on_rows:
            raise IndexError("a fault of the batch")
        for request, token_id, position in zip(
            owners.tolist(), batch.token_ids.tolist(), batch.positions.tolist(), strict=True
        ):
            for layer in layers:
                table, states = tables[layer][request], arrays[layer]
                before = 0
                if position:
                    before = int(states[table[(position - 1) // size], (position - 1) % size])
                states[table[position // size], position % size] = mix(before, token_id, position)
            self.computed.append((position, token_id))
        logits = np.empty((len(batch.logit_rows), VOCAB), np.float32)
        for index, row in enumerate(batch.logit_rows.tolist()):
            length = int(batch.positions[row]) + 1
            seen = []
            for layer, window in enumerate(self.windows):
                blocks = tables[layer][owners[row], : -(-length // size)]
                first = max(0, length - window) if window else 0
                seen.append(arrays[layer][blocks].reshape(-1)[first:length])
            logits[index] = logits_of(*seen)
            if batch.token_ids[row] == self.nan_on:
                logits[index, 3] = np.nan
        return logits

    def forward_with_features(
        self, batch: RaggedBatch, kv: KVCacheArrays, layers: Sequence[int]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32] | None]:
        """Features are all that the next state and its logits follow from, in a model without
        windows: the bits of (what logits were drawn from, state, position)."""
        logits = self.forward(batch, kv)
        if not layers:
            return logits, None
        size, place = kv.spec.block_size, kv.spec.place(0)
        tables = batch.block_table(place)
        owners = np.repeat(np.arange(len(batch.query_start) - 1), np.diff(batch.query_start))
        features = np.empty((len(batch.token_ids), 3), np.uint64)
        for row, (request, position) in enumerate(
            zip(owners.tolist(), batch.positions.tolist(), strict=True)
        ):
            blocks = tables[request, : position // size + 1]
            states = kv.arrays[place.index][blocks].reshape(-1)[: position + 1]
            features[row] = (_seen(states), states[-1], position)
        return logits, features.view(np.float32)


class MockHead:
    """A head that knows what the mock says next, but for places where it is made wrong.

    Its "K and V" of an entry are the place of its token in the text. An entry whose earlier ones
    are not those of the tokens before it, one after another, fails; but for one whose features the
    target did not compute again, so that those of the next token stand in (num_stood_in).
    wrong_every: of positions, those of which it says another token.
    """

    model_type, vocab_size, weight_codec, weight_bytes = "mock_head", VOCAB, "F32", 0
    max_positions, length_cause = 4096, ""
    feature_layers, feature_width = (0,), 6
    block_drafts = 0

    def __init__(self, wrong_every: int = 0, nan_on: int = -1, num_kept: int = 0) -> None:
        self.num_kept = num_kept
        self.wrong_every = wrong_every
        self.nan_on = nan_on
        self.batches: list[RaggedBatch] = []
        self.num_stood_in = 0

    @property
    def cache_layout(self) -> CacheLayout:
        return cache_layout([LayerKV(1, 2)])

    def begin(
        self,
        batch: RaggedBatch,
        kv: KVCacheArrays,
        features: npt.NDArray[np.float32],
        before: Sequence[npt.NDArray[np.float32]],
        most: int,
    ) -> tuple[npt.NDArray[np.float32], tuple[npt.NDArray[np.float32], ...]]:
        assert features.shape[1] == self.feature_width and len(before) == self.num_kept
        assert most > 0
        for each in before:  # what is kept is of the token that the first features are of
            firsts = features[batch.query_start[:-1]]
            assert np.array_equal(each.view(np.uint64)[:, 2], firsts.view(np.uint64)[:, 2])
        logits, following = self.forward(batch, kv, features)
        return logits, (following,) * max(1, self.num_kept)

    def go_on(
        self,
        batch: RaggedBatch,
        kv: KVCacheArrays,
        carried: tuple[npt.NDArray[np.float32], ...],
        place: int,
    ) -> tuple[npt.NDArray[np.float32], tuple[npt.NDArray[np.float32], ...]]:
        assert place > 0 and all(len(each) == batch.num_requests for each in carried)
        logits, following = self.forward(batch, kv, carried[0])
        return logits, (following,) * len(carried)

    def forward(
        self, batch: RaggedBatch, kv: KVCacheArrays, states: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Logits of the rows that want some, and the states behind the last of each request."""
        self.batches.append(batch)
        size, place = kv.spec.block_size, kv.spec.place(0)
        tables, array = batch.block_table(place), kv.arrays[place.index]
        owners = np.repeat(np.arange(len(batch.query_start) - 1), np.diff(batch.query_start))
        following = np.empty((len(batch.token_ids), 3), np.uint64)
        columns = (owners.tolist(), batch.token_ids.tolist(), batch.positions.tolist())
        for row, (request, token_id, entry) in enumerate(zip(*columns, strict=True)):
            seen, state, before = np.ascontiguousarray(states[row]).view(np.uint64).tolist()
            position = before + 1
            array[tables[request, entry // size], entry % size] = position
            kept = array[tables[request, : entry // size + 1]].reshape(-1)[: entry + 1]
            self._check(kept.astype(np.int64))
            state = mix(state, token_id, position)
            order = ((position + 1) * 0x9E3779B97F4A7C15 & _MASK) | 1
            following[row] = (seen ^ (state * order & _MASK), state, position)
        logits = np.empty((len(batch.logit_rows), VOCAB), np.float32)
        for index, row in enumerate(batch.logit_rows.tolist()):
            logits[index] = _drawn(int(following[row, 0]))
            if self.wrong_every and int(following[row, 2]) % self.wrong_every == 0:
                logits[index] = np.roll(logits[index], 1)
            if int(batch.token_ids[row]) == self.nan_on:
                logits[index] = np.nan
        return logits, following[batch.query_start[1:] - 1].view(np.float32)

    def followed(
        self, following: npt.NDArray[np.float32], token_ids: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """What is behind each request's next token, and the logits there; nothing is stored."""
        found = np.empty((len(following), 3), np.uint64)
        states = np.ascontiguousarray(following).view(np.uint64).tolist()
        for row, ((seen, state, before), token_id) in enumerate(
            zip(states, token_ids.tolist(), strict=True)
        ):
            state = mix(state, token_id, before + 1)
            order = ((before + 2) * 0x9E3779B97F4A7C15 & _MASK) | 1
            found[row] = (seen ^ (state * order & _MASK), state, before + 1)
        return found.view(np.float32), np.stack([_drawn(int(row[0])) for row in found])

    def _check(self, kept: npt.NDArray[np.int64]) -> None:
        steps = np.diff(kept).tolist()
        for at, step in enumerate(steps):
            if step == 1 or (step == 2 and steps[at + 1 : at + 2] in ([0], [])):
                continue
            if step == 0 and at and steps[at - 1] == 2:
                self.num_stood_in += at == len(steps) - 1
                continue
            if step == 0 and at == 0:  # the first entry of all
                self.num_stood_in += len(steps) == 1
                continue
            raise AssertionError(f"entries are of tokens {kept.tolist()}")


def real_ops(backend: str) -> Ops:
    """A backend that computes; skips the test where the C++ kernels are not built, or torch is
    missing. Torch computes on the processor, in one thread: for operations this small others only
    wait for each other."""
    if backend == "cpu":
        pytest.importorskip(
            "headrace.ops.cpu._native", reason="the kernels are not built", exc_type=ImportError
        )
    if backend == "torch":
        pytest.importorskip("torch", reason="the torch backend needs PyTorch")
        return make_ops(backend, device="cpu", threads=1)
    return make_ops(backend)


class Clock:
    """A clock that moves when it is told to, and a little with every reading."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        self.now_s += 0.001
        return self.now_s


def make_core(
    model: MockModel | None = None,
    *,
    vocabulary: Callable[[], Vocabulary] | None = None,
    proposers: Sequence[Proposer] = (),
    draft: DraftChain[Any] | None = None,
    ops: MockOps | None = None,
    sleep: Callable[[float], None] | None = None,
    **settings: object,
) -> EngineCore:
    """An engine over the mock; few blocks and a small budget unless `settings` say otherwise."""
    chosen: dict[str, object] = {
        "num_gpu_blocks_override": 64,
        "block_size": 16,
        "max_num_batched_tokens": 64,
        "max_num_seqs": 8,
        **settings,
    }
    return EngineCore(
        model if model is not None else MockModel(),
        MockOps() if ops is None else ops,  # type: ignore[arg-type]
        EngineConfig(**chosen),  # type: ignore[arg-type]
        num_tokens=NUM_TOKENS,
        eos_token_ids=(EOS,),
        clock=Clock(),
        sleep=sleep or (lambda seconds: None),
        draw_seed=lambda: 12345,
        vocabulary=vocabulary,
        proposers=proposers,
        draft=draft,
    )


def make_draft(
    model: MockModel,
    *,
    num_blocks: int = 256,
    vocab_size: int = VOCAB,
    clock: Callable[[], float] | None = None,
) -> DraftModelChain:
    """A draft model over the mock, with a pool of its own."""
    config = EngineConfig(num_gpu_blocks_override=num_blocks, block_size=16)
    return DraftModelChain(
        model,
        MockOps(),  # type: ignore[arg-type]
        plan_kv_cache(model, config),
        num_tokens=NUM_TOKENS,
        vocab_size=vocab_size,
        clock=clock or Clock(),
    )


def make_head(head: MockHead, *, num_blocks: int = 256, ops: MockOps | None = None) -> HeadDrafts:
    """A head over the mock, with a pool of its own."""
    config = EngineConfig(num_gpu_blocks_override=num_blocks, block_size=16)
    backend: Any = ops or MockOps()
    plan = plan_kv_cache(head, config)  # type: ignore[arg-type]
    return HeadDrafts(head, backend, plan, num_tokens=NUM_TOKENS, clock=Clock())


def submit(
    request_id: str,
    prompt: Sequence[int],
    *,
    cache_salt: str = "",
    priority: int = 0,
    timeout_s: float | None = None,
    **params: object,
) -> Submit:
    """A Submit; greedy, 4 tokens and no end id unless `params` say otherwise."""
    chosen: dict[str, object] = {"temperature": 0.0, "max_tokens": 4, "ignore_eos": True, **params}
    return Submit(
        request_id,
        list(prompt),
        SamplingParams(**chosen),  # type: ignore[arg-type]
        cache_salt=cache_salt,
        priority=priority,
        timeout_s=timeout_s,
    )


@dataclass
class Collected:
    """All Outputs of one request put together."""

    outputs: list[Output] = field(default_factory=list)

    @property
    def token_ids(self) -> list[int]:
        return [token for output in self.outputs for token in output.token_ids]

    @property
    def logprobs(self) -> list[TokenLogprob]:
        """One per token, where they were asked for."""
        given = [logprob for output in self.outputs for logprob in output.logprobs or ()]
        assert len(given) in (0, len(self.token_ids))
        return given

    @property
    def prompt_logprobs(self) -> list[TokenLogprob | None] | None:
        """RowTokens once at most."""
        given = [
            output.prompt_logprobs for output in self.outputs if output.prompt_logprobs is not None
        ]
        assert len(given) <= 1, "prompt_logprobs came twice"
        return given[0] if given else None

    @property
    def finish_reason(self) -> str | None:
        return self.outputs[-1].finish_reason if self.outputs else None


def collect(into: dict[str, Collected], outputs: list[Output]) -> None:
    """Sort outputs by request; a request says nothing after its finish_reason."""
    for output in outputs:
        collected = into.setdefault(output.request_id, Collected())
        assert collected.finish_reason is None, "an output after the last one"
        collected.outputs.append(output)


def drain(
    core: EngineCore, into: dict[str, Collected] | None = None, *, max_steps: int = 2000
) -> dict[str, Collected]:
    """Step until nothing is left to do, checking everything after every step."""
    results = {} if into is None else into
    for _ in range(max_steps):
        if not core.has_work:
            return results
        collect(results, core.step())
        core.check()
    raise AssertionError(f"still working after {max_steps} steps: {core.stats()}")
