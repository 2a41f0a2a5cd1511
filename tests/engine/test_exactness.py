"""On real arithmetic: whatever runs beside a request, its tokens and logprobs stay the same bits.

A tiny random model, requests with random lengths, parameters and shared prefixes, some cancelled,
a budget that cuts prompts, a pool so small that requests are preempted, and cache hits.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from headrace.config.settings import EngineConfig
from headrace.engine.core import EngineCore
from headrace.engine.drafts.heads.head_drafts import HeadDrafts
from headrace.engine.drafts.model.draft_model import DraftModel
from headrace.engine.drafts.passes.draft_chain import DraftChain
from headrace.engine.drafts.proposer import Proposal, Proposer
from headrace.engine.memory.kv_memory import kinds_of, plan_kv_cache
from headrace.engine.messages import Submit, TokenLogprob
from headrace.engine.params import SamplingParams
from headrace.engine.request import Request
from headrace.models import Model, load_model, read_config
from headrace.models.heads import (
    DraftHead,
    load_dflash,
    load_eagle3,
    load_medusa,
    load_mtp,
    open_mtp_folder,
)
from headrace.models.heads.mtp import mtp_checkpoint
from headrace.ops.interface import Ops
from headrace.ops.kv import KVCacheArrays
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.hugging_face.head_folder import open_head_folder
from headrace.weights.open import open_checkpoint
from tests.engine.mock import Collected, collect, drain, real_ops
from tests.models.shipped_moe import SHIPPED
from tests.tiny import EOS, NUM_TOKENS, tiny_checkpoint, to_tensor
from tests.tiny_families import tiny_family
from tests.tiny_heads import (
    dflash_config,
    eagle3_config,
    medusa_weights,
    write_dflash,
    write_eagle3,
    write_medusa,
    write_mtp_folder,
)
from tests.tiny_heads import mtp_checkpoint as tiny_mtp

BLOCK_SIZE = 16


def backends() -> list[object]:
    """The reference at the small size, the cpu backend at both, each with every codec."""
    cases: list[object] = []
    for codec in ("F32", "BF16", "Q8_0"):
        for backend, count in (("reference", 16), ("cpu", 16), ("cpu", 64)):
            cheap = (backend, count) == ("cpu", 16)
            cases.append(
                pytest.param(
                    backend, codec, count, id=f"{backend}-{codec}-{count}",
                    marks=() if cheap else pytest.mark.load,
                )
            )  # fmt: skip
    return cases


@dataclass(frozen=True)
class Case:
    """A request, when it is submitted and when it is cancelled."""

    submit: Submit
    at_step: int
    cancel_at: int | None
    """The step before which it is cancelled, wherever it is then."""
    cancel_after_tokens: int | None = None


def cases(count: int, rng: random.Random) -> list[Case]:
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
            max_tokens=rng.randint(1, 40),
            ignore_eos=rng.random() < 0.8,
            logprobs=rng.choice([None, 0, 3]),
        )
        at_step = rng.randint(0, 20)
        cancel_at = at_step + rng.randint(0, 20) if rng.random() < 0.2 else None
        made.append(Case(Submit(f"r{index}", stem + own, params), at_step, cancel_at))
    return made


def logprobs_of(collected: Collected) -> list[TokenLogprob]:
    return [one for output in collected.outputs for one in output.logprobs or []]


@pytest.mark.parametrize(("backend", "codec", "count"), backends())
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_together_is_bit_for_bit_what_alone_is(
    family: str, backend: str, codec: str, count: int
) -> None:
    check_together_is_what_alone_is(family, {}, backend, codec, count)


@pytest.mark.parametrize(
    ("family", "kv", "v", "count"),
    [
        ("qwen3", "int8", "auto", 12),
        ("llama", "fp8", "q4_0", 12),
        ("llama", "q4_0", "auto", 12),
        *(
            pytest.param("llama", kv, "auto", 64, marks=pytest.mark.load)
            for kv in ("fp8", "int8", "q8_0", "q4_0")
        ),
        pytest.param("gemma2", "q8_0", "q4_0", 64, marks=pytest.mark.load),
        pytest.param("deepseek_v3", "int8", "auto", 64, marks=pytest.mark.load),
    ],
)
def test_so_it_is_with_a_cache_in_few_bits(family: str, kv: str, v: str, count: int) -> None:
    check_together_is_what_alone_is(family, GROUPS.get(family, {}), "cpu", "Q8_0", count, kv, v)


KINDS = {
    "full": {"kv_cache_dtype": "int8", "kv_cache_dtype_sliding": "bf16"},
    "sliding": {"kv_cache_dtype_sliding": "q4_0"},
    "both": {"kv_cache_dtype": "q4_0", "kv_cache_dtype_v": "q8_0", "kv_cache_dtype_sliding": "fp8"},
    "near": {"kv_cache_dtype": "fp8", "kv_cache_near": "bf16"},
    "far": {"kv_cache_dtype": "q4_0", "kv_cache_near": "none"},
    "latents": {"kv_cache_dtype": "int8"},
}
"""Of layers that see everything and of those with a window; what is near, and not, in bf16."""


@pytest.mark.parametrize(
    ("family", "kinds", "backend", "count"),
    [
        ("gemma2", "full", "cpu", 12),
        ("llama", "near", "cpu", 12),
        *(
            pytest.param(family, kinds, "cpu", 64, marks=pytest.mark.load)
            for family in ("gemma2", "gpt_oss", "llama4_text")
            for kinds in KINDS
            if kinds != "latents"
        ),
        pytest.param("deepseek_v3", "latents", "cpu", 64, marks=pytest.mark.load),
        pytest.param("gemma2", "full", "reference", 12, marks=pytest.mark.load),
    ],
)
def test_so_it_is_with_a_kind_for_each_group_of_layers(
    family: str, kinds: str, backend: str, count: int
) -> None:
    shape = (GROUPS | TINY).get(family, {})
    check_together_is_what_alone_is(family, shape, backend, "Q8_0", count, **KINDS[kinds])


GROUPS = {
    "gemma2": {"num_hidden_layers": 4, "sliding_window": 24},
    "gemma3_text": {"num_hidden_layers": 7, "sliding_window": 24},
    "llama4_text": {"attention_chunk_size": 72},
}
"""Layers with and without a window: 2 and 2, in two tables; 6 and 1, in seven. Chunks in three
layers of four."""


@pytest.mark.parametrize(
    ("backend", "codec", "count"),
    [
        ("cpu", "Q8_0", 12),
        pytest.param("reference", "F32", 12, marks=pytest.mark.load),
        pytest.param("cpu", "BF16", 64, marks=pytest.mark.load),
    ],
)
@pytest.mark.parametrize("family", GROUPS)
def test_groups_of_layers_give_the_same_bits_as_a_request_alone(
    family: str, backend: str, codec: str, count: int
) -> None:
    check_together_is_what_alone_is(family, GROUPS[family], backend, codec, count)


OTHERS = {
    # Chunks in most layers, queries that grow with the position in the others.
    "llama4": ("llama4_text", {"attention_chunk_size": 72}),
    # Heads of two widths, last layers that read K and V of earlier ones, inputs of layers.
    "gemma4-inputs": ("gemma4_text", {"sliding_window": 24}),
    # Values narrower than keys, sinks and more heads of K and V in layers with a window.
    "mimo-v2-flash": ("mimo_v2_flash", {"sliding_window": 24}),
    # Layers without attention, and of widths of their own.
    "nemotron-nas": ("nemotron-nas", {}),
    # Norms of heads behind the rotation.
    "hunyuan": ("hunyuan_v1_dense", {}),
}


@pytest.mark.load
@pytest.mark.parametrize("case", OTHERS)
def test_layers_of_other_kinds_give_the_same_bits_as_a_request_alone(case: str) -> None:
    family, change = OTHERS[case]
    shape = tiny_family(family).CASES[case] | change
    check_together_is_what_alone_is(family, shape, "cpu", "F32", 24)


@pytest.mark.parametrize(
    ("backend", "codec", "kv"),
    [
        ("cpu", "Q8_0", "bf16"),
        pytest.param("reference", "F32", "f32", marks=pytest.mark.load),
    ],
)
def test_latents_give_the_same_bits_as_a_request_alone(backend: str, codec: str, kv: str) -> None:
    check_together_is_what_alone_is("deepseek_v3", TINY["deepseek_v3"], backend, codec, 12, kv)


TINY: dict[str, dict[str, int]] = {
    "gpt_oss": {"num_hidden_layers": 4, "sliding_window": 24},
    "deepseek_v3": {"n_routed_experts": 8, "n_group": 4, "topk_group": 2},
}
"""Sinks and experts, with a window in every other layer; latents and experts in groups."""


DRAFTED = [
    ("qwen3", "Q8_0", "auto"), ("llama", "F32", "int8"), ("llama", "BF16", "q4_0"),
    ("qwen3", "Q4_K", "auto"), ("gemma2", "Q8_0", "auto"), ("gpt_oss", "BF16", "auto"),
    ("deepseek_v3", "Q8_0", "auto"), ("llama4_text", "F32", "q8_0"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("family", "codec", "kv"),
    [DRAFTED[0], *(pytest.param(*case, marks=pytest.mark.load) for case in DRAFTED[1:])],
)
def test_a_model_is_always_right_as_its_own_draft(family: str, codec: str, kv: str) -> None:
    """What it draws from its own K and V, in other passes and at other times, are the same bits."""
    ops = real_ops("cpu")
    shape: dict[str, int] = (GROUPS | TINY).get(family, {})
    if codec == "Q4_K":
        shape |= {"hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 8}
    model = load_model(tiny_checkpoint(family, codec, logit_scale=2.0, **shape), ops)  # type: ignore[arg-type]
    count = 12 if (family, codec, kv) == DRAFTED[0] else 64
    for is_short in (False, True):
        check_streams(
            model, ops, cases(count, random.Random(count)), {"kv_cache_dtype": kv}, model,
            is_short=is_short,
        )  # fmt: skip


@pytest.mark.load
@pytest.mark.parametrize(
    ("family", "of_draft", "codec", "seed"),
    [
        ("qwen3", "qwen3", "Q4_0", 0),
        ("llama", "gemma2", "BF16", 1),
        ("gemma2", "llama", "F32", 2),
        ("qwen3", "gpt_oss", "BF16", 3),
    ],
)
def test_a_draft_of_other_weights_and_layers_changes_no_bit(
    family: str, of_draft: str, codec: str, seed: int
) -> None:
    ops = real_ops("cpu")
    shapes: list[dict[str, int]] = [(GROUPS | TINY).get(name, {}) for name in (family, of_draft)]
    model = load_model(tiny_checkpoint(family, "Q8_0", logit_scale=2.0, **shapes[0]), ops)  # type: ignore[arg-type]
    other = tiny_checkpoint(of_draft, codec, seed, logit_scale=2.0, **shapes[1])  # type: ignore[arg-type]
    draft = load_model(other, ops)
    for is_short in (False, True):
        check_streams(model, ops, cases(64, random.Random(64)), {}, draft, is_short=is_short)


def test_a_head_that_computes_what_the_model_does_is_right() -> None:
    """A model whose layers add nothing, so that the last token alone says what follows, and a layer
    for further tokens that takes the token alone: through features, places and blocks."""
    ops = real_ops("cpu")
    checkpoint = tiny_mtp("mimo", "F32", logit_scale=2.0)
    tensors = dict(checkpoint.tensors)
    hidden = checkpoint.config["hidden_size"]

    def put(name: str, values: npt.NDArray[np.float32]) -> None:
        tensors[name] = to_tensor(name, values, "F32")

    for name, tensor in checkpoint.tensors.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            put(name, np.zeros(tensor.shape, np.float32))
    at = "model.mtp_layers.0"
    put(f"{at}.token_layernorm.weight", np.ones(hidden, np.float32))
    put(f"{at}.final_layernorm.weight", tensors["model.norm.weight"].to_f32())
    eye, nothing = np.eye(hidden, dtype=np.float32), np.zeros((hidden, hidden), np.float32)
    put(f"{at}.input_proj.weight", np.concatenate([nothing, eye], 1))
    checkpoint = replace(checkpoint, tensors=tensors)
    model = load_model(checkpoint, ops)
    head = load_mtp(mtp_checkpoint(checkpoint, read_config(checkpoint)), model, ops)
    config = EngineConfig(num_gpu_blocks_override=64, max_model_len=512)
    plan = plan_kv_cache(model, config)
    answers = []
    for speculation in ("none", '{"method": "mtp", "adaptive": false}', '{"method": "mtp"}'):
        drafts = HeadDrafts(head, ops, plan_kv_cache(head, config), num_tokens=NUM_TOKENS)
        core = EngineCore(
            model, ops, msgspec.structs.replace(config, speculative_config=speculation),
            num_tokens=NUM_TOKENS, plan=plan, draft=None if speculation == "none" else drafts,
        )  # fmt: skip
        for index, temperature in enumerate((0.0, 0.7, 1.0)):
            params = SamplingParams(temperature=temperature, seed=index, max_tokens=60, logprobs=1)
            core.submit(Submit(f"r{index}", list(range(index, 40)), params))
        got = drain(core)
        answers.append({name: (each.token_ids, each.logprobs) for name, each in got.items()})
        if "false" in speculation:
            stats = core.stats()
            assert stats.spec_accepted_tokens > 0.95 * stats.spec_draft_tokens > 50
    assert answers[0] == answers[1] == answers[2]


HEADS = [
    ("mimo", "Q8_0", "auto"), ("glm4_moe", "F32", "int8"), ("deepseek_v3", "BF16", "auto"),
    ("eagle3", "F32", "auto"), ("eagle3", "BF16", "q8_0"), ("mimo_v2_flash", "F32", "auto"),
    ("step3p7", "BF16", "int8"), ("ernie4_5_moe", "Q8_0", "auto"), ("dflash", "F32", "auto"),
    ("dflash", "BF16", "q4_0"), ("dflash-window", "Q8_0", "auto"), ("medusa", "F32", "q4_0"),
    ("mtp-apart", "Q8_0", "auto"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("family", "codec", "kv"),
    [HEADS[0], *(pytest.param(*case, marks=pytest.mark.load) for case in HEADS[1:])],
)
def test_a_head_changes_no_bit(family: str, codec: str, kv: str, tmp_path: Path) -> None:
    is_first = (family, codec, kv) == HEADS[0]
    count = 6 if is_first else 64
    for is_short in (False,) if is_first else (False, True):
        folder = tmp_path / str(is_short)
        folder.mkdir()
        check_head("cpu", family, codec, kv, folder, count, is_short=is_short)


def check_head(
    backend: str, family: str, codec: str, kv: str, tmp_path: Path, count: int, *, is_short: bool
) -> None:
    """So many streams of a model with a head give what each alone gives without one."""
    ops = real_ops(backend)
    model, head = with_head(ops, family, codec, tmp_path)
    check_streams(
        model, ops, cases(count, random.Random(count)), {"kv_cache_dtype": kv}, head,
        is_short=is_short,
    )  # fmt: skip


def with_head(
    ops: Ops, family: str, codec: str, tmp_path: Path, **shape: int
) -> tuple[Model, DraftHead]:
    """A tiny model and a random head for it. family: with layers for further tokens, or the kind of
    head of a Qwen3."""
    if family == "eagle3":
        checkpoint = tiny_checkpoint("qwen3", codec, logit_scale=2.0, **shape)
        model = load_model(checkpoint, ops)
        folder = write_eagle3(tmp_path, eagle3_config(dict(checkpoint.config)))
        head: DraftHead = load_eagle3(open_head_folder(folder), model, ops)
    elif family.startswith("dflash"):
        checkpoint = tiny_checkpoint("qwen3", codec, logit_scale=2.0, **shape)
        model = load_model(checkpoint, ops)
        kinds = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 20}
        stated = dflash_config(dict(checkpoint.config), **(kinds if "window" in family else {}))
        head = load_dflash(open_head_folder(write_dflash(tmp_path, stated)), model, ops)
    elif family == "mtp-apart":
        both = tiny_mtp("qwen3", codec, logit_scale=2.0, **shape)
        checkpoint = tiny_checkpoint("qwen3", codec, logit_scale=2.0, **shape)
        model = load_model(checkpoint, ops)
        path = write_mtp_folder(tmp_path, both, offsets=np.arange(144, dtype=np.int64))
        opened = open_mtp_folder(path, checkpoint, model.config)
        layers_of = opened.folder.checkpoint
        head = load_mtp(layers_of, model, ops, opened.config, opened.ids)
    elif family == "medusa":
        model = load_model(tiny_checkpoint("qwen3", codec, logit_scale=2.0, **shape), ops)
        weights = medusa_weights(model.config.hidden_size, model.vocab_size, 4, 1)
        folder = write_medusa(tmp_path, {"medusa_num_heads": 4}, weights)
        head = load_medusa(open_head_folder(folder), model, ops)
    else:
        layers = 3 if family in ("mimo_v2_flash", "step3p7") else 1
        shape = TINY.get(family, {}) | shape
        checkpoint = tiny_mtp(family, codec, count=layers, logit_scale=2.0, **shape)
        model = load_model(checkpoint, ops)
        head = load_mtp(mtp_checkpoint(checkpoint, read_config(checkpoint)), model, ops)
    return model, head


@pytest.mark.load
@pytest.mark.parametrize(("codec", "kv"), [("BF16", "f32"), ("Q8_0", "bf16")])
@pytest.mark.parametrize("family", TINY)
def test_64_streams_with_experts_give_the_same_bits_as_each_alone(
    family: str, codec: str, kv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tiny_checkpoint(family, codec, logit_scale=2.0, **TINY[family])  # type: ignore[arg-type]
    check_64_streams(checkpoint, kv, monkeypatch)


@pytest.mark.load
@pytest.mark.skipif(
    not SHIPPED.exists(), reason="models/ is in the repository, in no sdist and no wheel"
)
@pytest.mark.parametrize("kv", ["f32", "bf16"])
def test_64_streams_of_headrace_moe_give_the_same_bits_as_each_alone(
    kv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_64_streams(open_checkpoint(SHIPPED), kv, monkeypatch)


def check_64_streams(checkpoint: Checkpoint, kv: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kind of stream occurs: greedy and drawn, cancelled midway, going on from a prefix that
    ends within a block, preempted.
    """
    ops = real_ops("cpu")
    copied: list[tuple[int, int]] = []
    kv_copy = ops.kv_copy

    def noted(arrays: KVCacheArrays, pairs: npt.NDArray[np.int32]) -> None:
        copied.extend(map(tuple, pairs.tolist()))
        kv_copy(arrays, pairs)

    monkeypatch.setattr(ops, "kv_copy", noted)
    rng = random.Random(64)
    requests = cases(64, rng)
    for at in rng.sample(range(64), 8):
        requests[at] = replace(requests[at], cancel_after_tokens=rng.randint(1, 8))
    together = check_streams(load_model(checkpoint, ops), ops, requests, {"kv_cache_dtype": kv})
    assert {case.submit.params.temperature for case in requests} == {0.0, 0.7, 1.5}
    ends = [together[case.submit.request_id] for case in requests]
    midway = [end for end in ends if end.finish_reason == "abort" and end.token_ids]
    assert len(midway) >= 3
    assert sum(end.outputs[-1].num_preemptions > 0 for end in ends) >= 3
    hits = [end.outputs[0].cached_tokens for end in ends]
    assert any(hit > BLOCK_SIZE and hit % BLOCK_SIZE for hit in hits) and copied


def drafting(
    draft: Model | DraftHead, model: Model, ops: Ops, kinds: dict[str, str], entries: int
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
    return DraftModel(draft, ops, plan, num_tokens=NUM_TOKENS, vocab_size=model.vocab_size)


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
    count: int,
    kv: str = "auto",
    v: str = "auto",
    **kinds: str,
) -> None:
    ops = real_ops(backend)
    model = load_model(tiny_checkpoint(family, codec, logit_scale=2.0, **shape), ops)  # type: ignore[arg-type]
    kinds = {"kv_cache_dtype": kv, "kv_cache_dtype_v": v, **kinds}
    check_streams(model, ops, cases(count, random.Random(count)), kinds)


def check_streams(
    model: Model,
    ops: Ops,
    requests: list[Case],
    kinds: dict[str, str],
    draft: Model | DraftHead | None = None,
    *,
    is_short: bool = True,
) -> dict[str, Collected]:
    """What each request got among all, which is what it gets alone.

    draft: a model that drafts are from; None for those of texts and of some that know the answer.
    is_short: of blocks, so that requests are preempted; else most steps have drafts, which nobody
    waits for.
    """
    count = len(requests)
    asked = EngineConfig(**kinds)  # type: ignore[arg-type]
    layout = model.cache_layout.stored_as(kinds_of(asked, model.weight_codec))
    tables = layout.num_tables

    def core(
        proposers: Sequence[Proposer] = (), draft: DraftChain[Any] | None = None, **settings: object
    ) -> EngineCore:
        given = {"block_size": BLOCK_SIZE, "max_num_seqs": 64, **kinds, **settings}
        config = EngineConfig(**given)  # type: ignore[arg-type]
        return EngineCore(
            model, ops, config, num_tokens=NUM_TOKENS, eos_token_ids=(EOS,), proposers=proposers,
            draft=draft,
        )  # fmt: skip

    expected: dict[str, Collected] = {}
    for case in requests:
        alone = core(num_gpu_blocks_override=10 * tables, max_num_batched_tokens=512,
                     enable_prefix_caching=False, speculative_config="none")  # fmt: skip
        alone.submit(case.submit)
        drain(alone, expected)
    # Enough blocks for about a quarter of the requests at a time, which hold less with windows.
    entries = max(10, count // 6) if tables > 1 else max(16, count * 3 // 8)
    entries, budget = (entries, 48) if is_short else (10 * count, 512)
    answers = {name: answer.token_ids for name, answer in expected.items()}
    busy = core(
        [Guesses(answers)] if draft is None else [],
        None if draft is None else drafting(draft, model, ops, kinds, entries),
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
    assert stats.num_preemptions > 0 or (tables > 1 and count < 64) or not is_short
    assert stats.prefix_hits_tokens > 0
    assert stats.spec_draft_failures == 0 < stats.spec_draft_tokens
    assert stats.spec_draft_tokens > 2 * count or is_short
    if draft is model:
        assert stats.spec_accepted_tokens == stats.spec_draft_tokens
    elif draft is None:
        assert 0 < stats.spec_accepted_tokens < stats.spec_draft_tokens
    elif not is_short:
        assert stats.spec_accepted_tokens < stats.spec_draft_tokens
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
    return together
