"""Streams of one engine on real arithmetic, held to what each of them gets alone, bit for bit.

Requests have random lengths, parameters and shared prefixes, some are cancelled, a budget cuts
prompts, a pool is so small that requests are preempted, and prefixes are found.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from headrace.config.settings import EngineConfig
from headrace.engine.core import EngineCore
from headrace.engine.drafts.heads.head_drafts import HeadDrafts
from headrace.engine.drafts.model.draft_model import DraftModelChain
from headrace.engine.drafts.passes.draft_chain import DraftChain
from headrace.engine.drafts.proposer import Proposal, Proposer
from headrace.engine.memory.kv_memory import kinds_of, plan_kv_cache
from headrace.engine.messages import Submit, TokenLogprob
from headrace.engine.params import SamplingParams
from headrace.engine.request import Request
from headrace.models import Model, load_model
from headrace.models.heads import DraftHead
from headrace.ops.interface import Ops
from tests.engine.mock import Collected, collect, drain, real_ops
from tests.tiny import EOS, NUM_TOKENS, tiny_checkpoint

BLOCK_SIZE = 16

Kinds = dict[str, str]
"""Settings of an engine that say what K and V are stored in."""

GROUPS = {
    "gemma2": {"num_hidden_layers": 4, "sliding_window": 24},
    "gemma3_text": {"num_hidden_layers": 7, "sliding_window": 24},
    "llama4_text": {"attention_chunk_size": 72},
}
"""Layers with and without a window: 2 and 2, in two tables; 6 and 1, in seven. Chunks in three
layers of four."""

TINY: dict[str, dict[str, int]] = {
    "gpt_oss": {"num_hidden_layers": 4, "sliding_window": 24},
    "deepseek_v3": {"n_routed_experts": 8, "n_group": 4, "topk_group": 2},
}
"""Sinks and experts, with a window in every other layer; latents and experts in groups."""

KINDS: dict[str, Kinds] = {
    "full": {"kv_cache_dtype": "int8", "kv_cache_dtype_sliding": "bf16"},
    "sliding": {"kv_cache_dtype_sliding": "q4_0"},
    "both": {"kv_cache_dtype": "q4_0", "kv_cache_dtype_v": "q8_0", "kv_cache_dtype_sliding": "fp8"},
    "near": {"kv_cache_dtype": "fp8", "kv_cache_near": "bf16"},
    "far": {"kv_cache_dtype": "q4_0", "kv_cache_near": "none"},
    "latents": {"kv_cache_dtype": "int8"},
}
"""Of layers that see everything and of those with a window; what is near, and not, in bf16."""


@dataclass(frozen=True)
class Case:
    """A request, when it is submitted and when it is cancelled."""

    submit: Submit
    at_step: int
    cancel_at: int | None
    """The step before which it is cancelled, wherever it is then."""
    cancel_after_tokens: int | None = None


def cases(count: int, rng: random.Random | None = None, *, most_tokens: int = 40) -> list[Case]:
    """So many requests, with at most so many tokens to give each. rng: by default one that follows
    from their number."""
    rng = rng or random.Random(count)
    stems = [[rng.randrange(256) for _ in range(70)] for _ in range(3)]
    made = []
    for index in range(count):
        own = [rng.randrange(256) for _ in range(rng.randint(1, 30))]
        stem = rng.choice(stems)[: rng.randint(0, 70)] if rng.random() < 0.7 else []
        params = SamplingParams(
            temperature=rng.choice([0.0, 0.7, 1.5]),
            top_k=rng.choice([0, 20]),
            top_p=rng.choice([1.0, 0.9]),
            min_p=rng.choice([0.0, 0.02]),
            seed=index,
            max_tokens=rng.randint(1, most_tokens),
            ignore_eos=rng.random() < 0.8,
            logprobs=rng.choice([None, 0, 3]),
        )
        at_step = rng.randint(0, 20)
        cancel_at = at_step + rng.randint(0, 20) if rng.random() < 0.2 else None
        made.append(Case(Submit(f"r{index}", stem + own, params), at_step, cancel_at))
    return made


def logprobs_of(collected: Collected) -> list[TokenLogprob]:
    return [logprob for output in collected.outputs for logprob in output.logprobs or []]


def draft_chain(
    draft: Model | DraftHead, model: Model, ops: Ops, kinds: Kinds, entries: int
) -> DraftChain[Any]:
    """The draft with a pool for so many entries of tables, which is too small for all."""
    config = EngineConfig(block_size=BLOCK_SIZE, **kinds)  # type: ignore[arg-type]
    layout = draft.cache_layout.stored_as(kinds_of(config, draft.weight_codec))
    blocks = entries * layout.num_tables
    plan = plan_kv_cache(
        draft, msgspec.structs.replace(config, num_gpu_blocks_override=blocks, max_model_len=100)
    )
    if isinstance(draft, DraftHead):
        return HeadDrafts(draft, ops, plan, num_tokens=NUM_TOKENS)
    return DraftModelChain(draft, ops, plan, num_tokens=NUM_TOKENS, vocab_size=model.vocab_size)


class Guesses:
    """Half of the time nothing, so that drafts are those of the engine's own sources; else the
    request's next tokens, some of them wrong from a place on."""

    def __init__(self, answers: dict[str, list[int]]) -> None:
        self._answers = answers
        self._rng = random.Random(7)

    def propose(self, request: Request, most: int) -> Proposal | None:
        if self._rng.random() < 0.8:
            return None
        done = request.num_wanted - request.num_prompt
        guess = self._answers[request.request_id][done : done + 4]
        if self._rng.random() < 0.3:
            guess[self._rng.randrange(len(guess)) :] = [0, 0]
        return Proposal(guess, is_certain=False)


def check_together_is_what_alone_is(
    family: str,
    shape: dict[str, int],
    backend: str,
    codec: str,
    requests: list[Case],
    kinds: Kinds | None = None,
) -> None:
    """Streams of a tiny model of a family, without a model that drafts."""
    ops = real_ops(backend)
    model = load_model(tiny_checkpoint(family, codec, logit_scale=2.0, **shape), ops)  # type: ignore[arg-type]
    check_streams(model, ops, requests, kinds or {})


def check_streams(
    model: Model,
    ops: Ops,
    requests: list[Case],
    kinds: Kinds,
    draft: Model | DraftHead | None = None,
    *,
    short: Sequence[bool] = (True,),
) -> dict[str, Collected]:
    """What each request got among all, which is what it gets alone; of the last way.

    draft: a model that drafts are from; None for those of texts and of some that know the answer.
    short: ways to have them together: short of blocks, so that requests are preempted; else most
    steps have drafts, which nobody waits for.
    """
    expected = _alone(model, ops, requests, kinds)
    together: dict[str, Collected] = {}
    for is_short in short:
        together = _together(model, ops, requests, kinds, draft, expected, is_short=is_short)
        _compare(requests, together, expected)
    return together


def _alone(model: Model, ops: Ops, requests: Sequence[Case], kinds: Kinds) -> dict[str, Collected]:
    """Each request's answer, one after another and with nothing kept between them."""
    blocks = 10 * _num_tables(model, kinds)
    alone = _core(model, ops, kinds, num_gpu_blocks_override=blocks, max_num_batched_tokens=512,
                  enable_prefix_caching=False, speculative_config="none")  # fmt: skip
    answers: dict[str, Collected] = {}
    for case in requests:
        alone.submit(case.submit)
        drain(alone, answers)
    return answers


def _together(
    model: Model,
    ops: Ops,
    requests: Sequence[Case],
    kinds: Kinds,
    draft: Model | DraftHead | None,
    expected: dict[str, Collected],
    *,
    is_short: bool,
) -> dict[str, Collected]:
    count, tables = len(requests), _num_tables(model, kinds)
    # Enough blocks for about a quarter of the requests at a time, which hold less with windows.
    entries = max(10, count // 6 if tables > 1 else count * 3 // 8)
    entries, budget = (entries, 48) if is_short else (10 * count, 512)
    answers = {name: answer.token_ids for name, answer in expected.items()}
    busy = _core(
        model, ops, kinds,
        proposers=[Guesses(answers)] if draft is None else [],
        draft=None if draft is None else draft_chain(draft, model, ops, kinds, entries),
        num_gpu_blocks_override=entries * tables, max_num_batched_tokens=budget,
        speculative_config=json.dumps(
            {"adaptive": False, "num_speculative_tokens": 5}
            | ({} if draft is None else {"model": "m"})
        ),
    )  # fmt: skip
    together: dict[str, Collected] = {}
    step = 0
    while busy.has_work or step <= 20:
        for case in requests:
            if case.at_step == step:
                busy.submit(case.submit)
            if case.cancel_at == step:
                busy.cancel(case.submit.request_id)
        collect(together, busy.step())
        busy.check()
        for case in requests:
            got = together.get(case.submit.request_id)
            if got and 0 < (case.cancel_after_tokens or 0) <= len(got.token_ids):
                busy.cancel(case.submit.request_id)
        step += 1
        assert step < 5000
    stats = busy.stats()
    # Within windows few requests that end early hold too little to push each other out.
    has_windows = any(getattr(layer, "window", 0) for layer in model.config.layer_caches)
    hold_little = count < 64 and (tables > 1 or has_windows)
    assert stats.num_preemptions > 0 or hold_little or not is_short
    assert stats.prefix_hits_tokens > 0
    assert stats.spec_draft_failures == 0 < stats.spec_draft_tokens
    assert stats.spec_draft_tokens > 2 * count or is_short
    if draft is model:
        assert stats.spec_accepted_tokens == stats.spec_draft_tokens
    elif draft is None:
        assert 0 < stats.spec_accepted_tokens < stats.spec_draft_tokens
    elif not is_short:
        assert stats.spec_accepted_tokens < stats.spec_draft_tokens
    return together


def _compare(
    requests: Sequence[Case], together: dict[str, Collected], expected: dict[str, Collected]
) -> None:
    for case in requests:
        got, own = together[case.submit.request_id], expected[case.submit.request_id]
        length = len(got.token_ids)
        if got.finish_reason == "abort":
            assert case.cancel_at is not None or case.cancel_after_tokens is not None
        else:
            assert got.finish_reason == own.finish_reason
            assert length == len(own.token_ids)
        assert got.token_ids == own.token_ids[:length]
        assert logprobs_of(got) == logprobs_of(own)[: len(logprobs_of(got))]
        assert len(logprobs_of(got)) == (0 if case.submit.params.logprobs is None else length)


def _num_tables(model: Model, kinds: Kinds) -> int:
    config = EngineConfig(**kinds)  # type: ignore[arg-type]
    return model.cache_layout.stored_as(kinds_of(config, model.weight_codec)).num_tables


def _core(
    model: Model,
    ops: Ops,
    kinds: Kinds,
    *,
    proposers: Sequence[Proposer] = (),
    draft: DraftChain[Any] | None = None,
    **settings: object,
) -> EngineCore:
    # No limit of a step's time, which would have other prompts wait on a busy machine.
    given = {"block_size": BLOCK_SIZE, "max_num_seqs": 64, "max_step_ms": 0, **kinds, **settings}
    return EngineCore(
        model, ops, EngineConfig(**given),  # type: ignore[arg-type]
        num_tokens=NUM_TOKENS, eos_token_ids=(EOS,), proposers=proposers, draft=draft,
    )  # fmt: skip
