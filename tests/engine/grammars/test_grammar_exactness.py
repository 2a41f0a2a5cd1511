"""On real arithmetic: answers are texts of their grammars, by acceptors that know nothing of the
engine's, and whatever runs beside a request changes no bit of them.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import jsonschema_rs
import pytest

from headrace.config.settings import EngineConfig
from headrace.engine.core import EngineCore
from headrace.engine.grammars.vocabulary import vocabulary_maker
from headrace.engine.messages import Submit
from headrace.engine.params import SamplingParams
from headrace.models import Model, load_model
from headrace.ops.interface import Ops
from headrace.structured.grammar import Grammar
from headrace.structured.vocabulary import Vocabulary
from tests.engine.mock import Collected, collect, drain, real_ops
from tests.tiny import EOS, IM_END, NUM_TOKENS, tiny_checkpoint

BLOCK_SIZE = 16

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["cat", "dog", None, 7]},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    },
    "required": ["name", "kind"],
    "additionalProperties": False,
}
PATTERNED = {
    "type": "array",
    "items": {"type": "string", "pattern": "^[a-f]{2,4}$"},
    "minItems": 1,
    "maxItems": 2,
}
CHOICES = ["yes", "yes, but", "né", "no\n"]
REGEX = r"[a-c]+(-[0-9]{1,3}){2}|x.y"


class Kind(NamedTuple):
    """A grammar, and whether a text is of it."""

    grammar: Grammar
    accepts: Callable[[str], bool]


def schema(value: dict[str, object]) -> Kind:
    validator = jsonschema_rs.validator_for(value)

    def accepts(text: str) -> bool:
        return bool(validator.is_valid(json.loads(text)))

    return Kind(Grammar("json_schema", json.dumps(value)), accepts)


@cache
def kinds() -> list[Kind]:
    return [
        schema(PERSON),
        schema(PATTERNED),
        Kind(Grammar("choice", json.dumps(CHOICES)), CHOICES.__contains__),
        Kind(Grammar("regex", REGEX), lambda text: bool(re.fullmatch(REGEX, text))),
    ]


def made(count: int, seed: int) -> list[tuple[Submit, Kind | None]]:
    """Three in four with a grammar, prompts of which some share a beginning."""
    rng = random.Random(seed)
    stem = [rng.randrange(256) for _ in range(60)]
    requests: list[tuple[Submit, Kind | None]] = []
    for index in range(count):
        kind = rng.choice(kinds()) if index % 4 else None
        own = [rng.randrange(256) for _ in range(rng.randint(1, 40))]
        params = SamplingParams(
            temperature=rng.choice([0.0, 0.8, 1.5]),
            top_k=rng.choice([0, 40]),
            top_p=rng.choice([1.0, 0.9]),
            repetition_penalty=rng.choice([1.0, 1.3]),
            seed=index,
            max_tokens=rng.choice([10, 60]),
            min_tokens=rng.choice([0, 3]),
            ignore_eos=kind is None,
            logprobs=rng.choice([None, 0, 2]),
            grammar=None if kind is None else kind.grammar,
        )
        beginning = stem[: rng.randint(20, 60)] if rng.random() < 0.6 else []
        requests.append((Submit(f"r{index}", beginning + own, params), kind))
    return requests


@cache
def tiny(backend: str) -> tuple[Model, Ops]:
    ops = real_ops(backend)
    return load_model(tiny_checkpoint("qwen3", "BF16", logit_scale=2.0), ops), ops


@cache
def vocabulary() -> Vocabulary:
    make = vocabulary_maker(tiny_checkpoint("qwen3", "BF16").tokenizer, NUM_TOKENS)
    assert make is not None
    return make()


def core(backend: str = "cpu", **settings: object) -> EngineCore:
    model, ops = tiny(backend)
    config = EngineConfig(**{"block_size": BLOCK_SIZE, "max_num_seqs": 64, **settings})  # type: ignore[arg-type]
    return EngineCore(
        model, ops, config, num_tokens=NUM_TOKENS, eos_token_ids=(EOS, IM_END),
        vocabulary=vocabulary,
    )  # fmt: skip


def check_text(got: Collected, kind: Kind) -> bool:
    """Whether the answer is whole; one that was cut may be anything's beginning."""
    ids = [token_id for token_id in got.token_ids if token_id < 256]
    ends = got.token_ids[len(ids) :]
    assert ends == got.token_ids[-1:] * len(ends) and len(ends) <= 1, "an end id within"
    if got.finish_reason == "length":
        return False
    assert got.finish_reason == "stop", got.outputs[-1].error
    text = bytes(ids).decode()
    assert kind.accepts(text), text
    return True


def compile_first(busy: EngineCore) -> None:
    """Compile every grammar, so that it depends on no thread's turn which requests run together."""
    for index, kind in enumerate(kinds()):
        params = SamplingParams(max_tokens=1, grammar=kind.grammar)
        busy.submit(Submit(f"first{index}", [index], params))
    drain(busy)


def check_many(count: int, seed: int) -> None:
    requests = made(count, seed)
    busy = core(num_gpu_blocks_override=12, max_num_batched_tokens=48)
    compile_first(busy)
    together: dict[str, Collected] = {}
    pending = list(requests)
    while busy.has_work or pending:
        for submitted, _ in pending[:2]:
            busy.submit(submitted)
        del pending[:2]
        collect(together, busy.step())
        busy.check()
    stats = busy.stats()
    assert stats.num_preemptions > 0 and stats.prefix_hits_tokens > 0
    constrained = [name for name, got in together.items() if got.outputs[-1].num_preemptions]
    assert constrained, "none was preempted"
    alone = core(
        num_gpu_blocks_override=20, enable_prefix_caching=False, max_num_batched_tokens=512
    )
    whole = 0
    for submitted, kind in requests:
        alone.submit(submitted)
        expected = drain(alone)[submitted.request_id]
        got = together[submitted.request_id]
        assert got.token_ids == expected.token_ids
        assert got.finish_reason == expected.finish_reason
        assert got.logprobs == expected.logprobs
        whole += kind is not None and check_text(got, kind)
    assert whole > count // 5


def test_16_requests_with_and_without_grammars_give_the_bits_of_each_alone() -> None:
    check_many(16, 16)


@pytest.mark.load
@pytest.mark.parametrize("seed", range(2))
def test_64_requests_with_and_without_grammars_give_the_bits_of_each_alone(seed: int) -> None:
    check_many(64, seed)


def test_answers_of_a_random_model_are_of_their_grammars() -> None:
    check_answers(24)


@pytest.mark.torch
def test_they_are_on_torch() -> None:
    check_answers(8, "torch")


@pytest.mark.long
def test_many_answers_of_a_random_model_are_of_their_grammars() -> None:
    check_answers(400)


def check_answers(count: int, backend: str = "cpu") -> None:
    engine = core(backend, num_gpu_blocks_override=256, max_num_batched_tokens=512)
    of_request = {}
    for seed in range(count):
        kind = kinds()[seed % len(kinds())]
        params = SamplingParams(temperature=1.2, seed=seed, max_tokens=120, grammar=kind.grammar)
        engine.submit(Submit(str(seed), [seed % 256, 1, 2], params))
        of_request[str(seed)] = kind
    whole = [check_text(got, of_request[name]) for name, got in drain(engine).items()]
    assert sum(whole) > 0.8 * count


def test_an_answer_is_the_same_after_a_hit_of_the_prefix_cache() -> None:
    engine = core(num_gpu_blocks_override=64)
    kind = kinds()[0]
    params = SamplingParams(
        temperature=1.0, seed=5, max_tokens=80, grammar=kind.grammar, logprobs=2
    )
    answers = []
    for name in ("cold", "warm"):
        engine.submit(Submit(name, list(range(100)), params))
        got = drain(engine)[name]
        answers.append((got.token_ids, got.logprobs))
        cached = got.outputs[0].cached_tokens
    assert cached > 90
    assert answers[0] == answers[1]
