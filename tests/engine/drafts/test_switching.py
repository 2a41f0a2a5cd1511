"""On real arithmetic: drafts of every proposer, switched on and off at random, change no bit.

Requests of every kind of edit, mask and end, two answers to some prompts, prefixes that are shared,
prompts in parts, and a pool that is too small. What a draft model or a head draws is put right
half of the time: a random head would never be, and what it keeps of drafts that came would not be
seen.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from headrace.config.settings import EngineConfig
from headrace.engine.core import EngineCore
from headrace.engine.drafts.passes.draft_chain import DraftChain
from headrace.engine.grammars.vocabulary import vocabulary_maker
from headrace.engine.memory.kv_memory import kinds_of
from headrace.engine.messages import Submit
from headrace.engine.params import SamplingParams
from headrace.engine.request import Request
from headrace.engine.sampling.sampler import DrawPosition, SampledToken
from headrace.models import Model, load_model
from headrace.models.heads import DraftHead
from headrace.ops.interface import Ops
from headrace.ops.operands import Array
from headrace.structured.grammar import Grammar
from headrace.structured.vocabulary import Vocabulary
from headrace.weights.open import open_checkpoint
from tests.engine.drafts.test_drafts import check_same, run
from tests.engine.mock import Collected, drain, real_ops
from tests.engine.model_with_head import model_with_head
from tests.engine.streams import BLOCK_SIZE, GROUPS, TINY, draft_chain
from tests.models.shipped_moe import SHIPPED
from tests.tiny import EOS, NUM_TOKENS, tiny_checkpoint

DRAFT = SHIPPED.parents[1] / "headrace-draft/headrace-draft-q8_0.gguf"


def requests(count: int) -> list[Submit]:
    """So many prompts, some of them with two answers."""
    rng = random.Random(count)
    stems = [[rng.randrange(256) for _ in range(48)] for _ in range(3)]
    made = []
    for index in range(count):
        chosen: dict[str, Any] = {
            "temperature": rng.choice([0.0, 0.7, 1.3]),
            "top_p": rng.choice([1.0, 0.9]),
            "seed": index,
            "max_tokens": rng.choice([1, 17, 40]),
            "ignore_eos": rng.random() < 0.8,
            "stop_token_ids": rng.choice([(), (), (101,)]),
            "repetition_penalty": rng.choice([1.0, 1.0, 1.3]),
            "frequency_penalty": rng.choice([0.0, 0.6]),
            "presence_penalty": rng.choice([0.0, 0.5]),
            "logprobs": rng.choice([None, 0, 2]),
            "logit_bias": rng.choice([{}, {101: 2.0, 65: 1.0}]),
            "bad_words_token_ids": rng.choice([(), ((97, 98), (64,))]),
        }
        chosen["min_tokens"] = min(rng.choice([0, 0, 6]), chosen["max_tokens"])
        if rng.random() < 0.3:
            chosen["grammar"] = Grammar("regex", rng.choice(["[ -~]+", "(ab|cd|name = )*[0-9]{9}"]))
        prompt = rng.choice(stems)[: rng.randint(0, 48)]
        prompt = [*prompt, *(rng.randrange(256) for _ in range(rng.randint(1, 20)))]
        for choice in range(1 + (rng.random() < 0.2)):
            params = SamplingParams(**chosen, choice=choice)
            made.append(Submit(f"r{index}.{choice}", prompt, params))
    return made


@cache
def letters() -> Vocabulary:
    """Of the tiny models: bytes."""
    names = [f"<{at}>".encode() for at in range(256, NUM_TOKENS)]
    pieces = [*(bytes([at]) for at in range(256)), *names]
    return Vocabulary(pieces, range(256, NUM_TOKENS), lambda text: list(text.encode()))


def switch(core: EngineCore, rng: random.Random) -> None:
    """Have each step drafts of some requests, or of none, and not as many as there are."""
    speculation = core._speculation
    assert speculation is not None
    begin_step = speculation.begin_step

    def begun(wanted: Sequence[tuple[Request, int]], batch: int, most: int) -> None:
        some = [(each, rng.randint(1, room)) for each, room in wanted if rng.random() < 0.7]
        begin_step(some if rng.random() < 0.8 else [], batch, most)

    vars(speculation)["begin_step"] = begun


def put_right(
    chain: DraftChain[Any],
    submits: Sequence[Submit],
    answers: dict[str, list[int]],
    rng: random.Random,
) -> None:
    """Have half of a chain's draws be what comes."""
    sampler = chain._sampler
    sample = sampler.sample
    prompts = {each.request_id: len(each.prompt_token_ids) for each in submits}

    def drawn(logits: Array, places: Sequence[DrawPosition]) -> list[SampledToken]:
        found = sample(logits, places)
        for at, place in enumerate(places):
            name = place.request.request_id
            follow = answers.get(name, [])[place.length - prompts.get(name, 0) :]
            if follow and found[at].error is None and rng.random() < 0.5:
                found[at] = SampledToken(follow[0])
        return found

    vars(sampler)["sample"] = drawn


Answers = dict[str, Collected]


@pytest.fixture(scope="module")
def known() -> dict[tuple[object, ...], Answers]:
    """What each request gets alone, by model, weights, cache and number of requests: proposers of
    one model share it."""
    return {}


def check_switching(
    model: Model,
    ops: Ops,
    count: int,
    kv: str,
    draft: Model | DraftHead | None,
    *,
    expected: Answers | None = None,
    vocabulary: Callable[[], Vocabulary] | None = letters,
    num_tokens: int = NUM_TOKENS,
) -> None:
    """Answers to so many prompts, with drafts of texts and of a draft. expected: what each gets
    alone; filled in where it is empty."""
    submits = requests(count)
    kinds = {"kv_cache_dtype": kv}
    asked = EngineConfig(**kinds)  # type: ignore[arg-type]
    tables = model.cache_layout.stored_as(kinds_of(asked, model.weight_codec)).num_tables

    def core(chain: DraftChain[Any] | None = None, **settings: object) -> EngineCore:
        given = {
            "block_size": BLOCK_SIZE, "max_num_seqs": 64, "max_step_ms": 0, **kinds, **settings,
        }  # fmt: skip
        config = EngineConfig(**given)  # type: ignore[arg-type]
        return EngineCore(
            model, ops, config, num_tokens=num_tokens, eos_token_ids=(EOS,), draft=chain,
            vocabulary=vocabulary,
        )  # fmt: skip

    expected = {} if expected is None else expected
    if not expected:
        alone = core(num_gpu_blocks_override=10 * tables, enable_prefix_caching=False,
                     enable_forced_spans=False, speculative_config="none")  # fmt: skip
        for each in submits:
            alone.submit(each)
            drain(alone, expected)
    answers = {name: each.token_ids for name, each in expected.items()}
    spec: dict[str, object] = {"method": "auto", "adaptive": False, "num_speculative_tokens": 5}
    if draft is not None:
        spec["model"] = "m"
    for entries, budget in ((max(14, count * 3 // 8), 64), (10 * count, 512)):
        rng = random.Random(entries)
        chain = None
        if draft is not None:
            chain = draft_chain(draft, model, ops, kinds, entries)
            put_right(chain, submits, answers, rng)
        busy = core(
            chain, num_gpu_blocks_override=entries * tables, max_num_batched_tokens=budget,
            speculative_config=json.dumps(spec),
        )  # fmt: skip
        switch(busy, rng)
        check_same(run(busy, submits, each_step=max(4, count // 5)), expected)
        stats = busy.stats()
        assert stats.prefix_hits_tokens > 0 == stats.spec_draft_failures
        assert chain is None or chain.isolation.num_failed == 0
        assert stats.spec_draft_tokens > 0
        assert stats.num_preemptions > 0 or count < 64 or budget > 64 or tables > 1
    # Where there is room, rows whose drafts came in part and whole.
    assert 2 in stats.spec_accepted_by_position
    assert 0.1 * count < stats.spec_accepted_tokens < stats.spec_draft_tokens


CODECS = [("F32", "auto"), ("BF16", "int8"), ("Q8_0", "auto"), ("Q4_K", "fp8")]
"""Weights, and what K and V are stored in."""
PROPOSERS = (
    "texts", "draft", "eagle3", "dflash", "medusa", "mimo", "mimo_v2_flash", "mtp-apart",
)  # fmt: skip
FAMILIES = ("gemma2", "gpt_oss", "deepseek_v3", "llama4_text")
"""Windows in groups of layers, experts, latents, chunks."""


def proposers_with_codecs() -> Iterator[tuple[str, str, str]]:
    """Each proposer with two of the codecs, in turn: what drafts do to requests and what weights
    are stored in meet in no code."""
    for turn, proposer in enumerate(PROPOSERS):
        # Q4_K has rows of 256 values, which MiMo's tiny heads of attention have not.
        able = [each for each in CODECS if each[0] != "Q4_K" or not proposer.startswith("mimo")]
        for step in range(2):
            yield proposer, *able[(turn + step) % len(able)]


@pytest.mark.parametrize(
    ("proposer", "codec", "kv", "count"),
    [
        ("eagle3", "Q8_0", "int8", 12),
        *(
            pytest.param(proposer, codec, kv, 64, marks=pytest.mark.load)
            for proposer, codec, kv in proposers_with_codecs()
        ),
    ],
)
def test_drafts_of_every_proposer_change_no_bit(
    proposer: str,
    codec: str,
    kv: str,
    count: int,
    tmp_path: Path,
    known: dict[tuple[object, ...], Answers],
) -> None:
    ops = real_ops("cpu")
    wide = {"hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 8}
    shape = wide if codec == "Q4_K" else {}
    draft: Model | DraftHead | None = None
    if proposer in ("texts", "draft"):
        checkpoint = tiny_checkpoint("qwen3", codec, logit_scale=2.0, **shape)  # type: ignore[arg-type]
        model = load_model(checkpoint, ops)
        if proposer == "draft":
            draft = load_model(tiny_checkpoint("llama", "F32", 1, logit_scale=2.0), ops)
    else:
        model, draft = model_with_head(ops, proposer, codec, tmp_path, **shape)
    # MiMo's checkpoints have layers for further tokens, all others' model is the same Qwen3.
    name = proposer if proposer.startswith("mimo") else "qwen3"
    expected = known.setdefault((name, codec, kv, count), {})
    check_switching(model, ops, count, kv, draft, expected=expected)


@pytest.mark.load
@pytest.mark.parametrize("family", FAMILIES)
def test_so_it_is_with_layers_of_other_kinds(family: str) -> None:
    ops = real_ops("cpu")
    shape = (GROUPS | TINY)[family]
    model = load_model(tiny_checkpoint(family, "Q8_0", logit_scale=2.0, **shape), ops)  # type: ignore[arg-type]
    draft = load_model(tiny_checkpoint("qwen3", "Q8_0", 1, logit_scale=2.0), ops)
    check_switching(model, ops, 64, "auto", draft)


@pytest.mark.load
@pytest.mark.skipif(
    not SHIPPED.exists(), reason="models/ is in the repository, in no sdist and no wheel"
)
def test_so_it_is_with_headrace_moe_and_its_draft() -> None:
    ops = real_ops("cpu")
    checkpoint = open_checkpoint(SHIPPED)
    model, draft = load_model(checkpoint, ops), load_model(open_checkpoint(DRAFT), ops)
    count = checkpoint.tokenizer.num_tokens or model.vocab_size
    maker = vocabulary_maker(checkpoint.tokenizer, count, None)
    check_switching(model, ops, 64, "int8", draft, vocabulary=maker, num_tokens=count)
