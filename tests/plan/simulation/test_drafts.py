"""Drafts in a simulation: the counts of the engine's core whose proposer is right as often."""

from __future__ import annotations

import random

import pytest

from headrace.engine.drafts.proposer import Proposal
from headrace.engine.request import Request
from headrace.engine.scheduling.step_budget import StepLimit
from headrace.errors import ConfigError
from headrace.plan.simulation.arrival import Arrival, PromptWriter
from headrace.plan.simulation.drafts import Guesses
from headrace.plan.simulation.service import Service
from headrace.plan.simulation.settings import EngineSettings
from tests.engine.mock import NUM_TOKENS, MockModel, collect, drain, make_core, submit
from tests.plan.simulation.services import LATENCY, engine, service

FIRST_ID = 5000
"""Ids of prompts are around it, so that none of them is one that the mock draws."""


class Scripted:
    """A proposer that knows the answers and is right as often as the simulation's."""

    def __init__(self, acceptance: tuple[float, ...], answers: dict[str, list[int]]) -> None:
        self._guesses = Guesses(acceptance)
        self._length = len(acceptance)
        self._answers = answers

    def propose(self, request: Request, most: int) -> Proposal:
        made = self._guesses.propose(request, most).token_ids
        accepted = sum(token_id == made[0] for token_id in made) if made[0] < 0 else 0
        done = request.num_wanted - request.num_prompt
        following = [*self._answers[request.request_id][done:], *[0] * self._length]
        right = following[: self._length]
        return Proposal(
            [
                token_id if at < accepted else (token_id + 1) % NUM_TOKENS
                for at, token_id in enumerate(right)
            ],
            is_certain=False,
        )


def of_the_engine(settings: EngineSettings, arrivals: list[Arrival]) -> dict[str, int]:
    """Real rows, real blocks and real draws."""
    writer = PromptWriter()
    submits = [
        submit(
            str(number),
            [FIRST_ID + token_id for token_id in writer.prompt(arrival, number)],
            max_tokens=arrival.output_tokens,
        )
        for number, arrival in enumerate(arrivals)
    ]
    alone = make_core(MockModel(vocab_size=2 * FIRST_ID), num_gpu_blocks_override=4000)
    for each in submits:
        alone.submit(each)
    answers = {name: got.token_ids for name, got in drain(alone, max_steps=9000).items()}
    core = make_core(
        MockModel(vocab_size=2 * FIRST_ID),
        proposers=[Scripted(settings.acceptance, answers)],
        num_gpu_blocks_override=settings.num_blocks,
        block_size=settings.block_size,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        max_num_seqs=settings.max_num_seqs,
        max_step_ms=0,
        enable_prefix_caching=settings.prefix_caching,
    )
    if settings.max_step_ms:
        core.scheduler._limit = StepLimit(settings.max_step_ms / 1e3, settings.latency)
    first, *others = submits
    core.submit(first)
    results: dict = {}
    collect(results, core.step())
    for each in others:
        core.submit(each)
    drain(core, results, max_steps=9000)
    assert {name: got.token_ids for name, got in results.items()} == answers
    stats = core.stats()
    return {
        "steps": stats.steps,
        "generated": stats.generation_tokens,
        "computed": stats.computed_tokens,
        "preemptions": stats.num_preemptions,
        "hits": stats.prefix_hits_tokens,
        "drafts": stats.spec_draft_tokens,
        "accepted": stats.spec_accepted_tokens,
    }


def of_the_simulation(settings: EngineSettings, arrivals: list[Arrival]) -> dict[str, int]:
    run = Service(service(settings), arrivals).run()
    assert not run.refused
    replica = run.replicas[0]
    return {
        "steps": replica.steps,
        "generated": replica.generated_tokens,
        "computed": replica.computed_tokens,
        "preemptions": replica.preemptions,
        "hits": replica.hit_tokens,
        "drafts": replica.draft_tokens,
        "accepted": replica.accepted_tokens,
    }


def check(seed: int, count: int) -> dict[str, int]:
    """Shared beginnings are whole blocks: which of two equally long rests of a block is copied
    depends on ids, which are others here."""
    source = random.Random(seed)
    arrivals = [
        Arrival(
            0, source.choice((40, 70, 150)), source.choice((1, 2, 30, 60)),
            shared=source.choice(((), (1,), (1, 2))), shared_tokens=32,
        )
        for _ in range(count)
    ]  # fmt: skip
    settings = engine(
        num_blocks=source.choice((24, 40)),
        max_num_batched_tokens=source.choice((12, 64, 256)),
        max_step_ms=source.choice((0.0, 7.0)),
        max_num_seqs=source.choice((3, 16)),
        prefix_caching=bool(seed % 3),
        acceptance=source.choice(((0.8, 0.7, 0.6), (0.5,), (0.9,) * 7, (0.0, 1.0))),
    )
    found = of_the_simulation(settings, arrivals)
    assert found == of_the_engine(settings, arrivals)
    return found


def test_a_simulation_has_the_steps_hits_and_drafts_of_the_engine() -> None:
    check(1, 6)


@pytest.mark.load
def test_many_simulations_have_the_steps_hits_and_drafts_of_the_engine() -> None:
    found = [check(seed, 16) for seed in range(10)]
    for name in ("preemptions", "hits", "drafts", "accepted"):
        assert sum(each[name] for each in found) > 0, name


def test_the_shares_are_those_that_are_accepted() -> None:
    made = engine(acceptance=(0.8, 0.5))
    run = Service(service(made), [Arrival(0, 10, 6_000)]).run()
    steps = run.replicas[0].steps
    # A step gives 1 + 0.8 + 0.4 tokens on average.
    assert 6_000 / steps == pytest.approx(2.2, rel=0.04)
    nothing = Service(service(engine(acceptance=(0.0,))), [Arrival(0, 10, 50)]).run()
    assert nothing.replicas[0].steps == 50
    assert nothing.replicas[0].accepted_tokens == 0
    everything = Service(service(engine(acceptance=(1.0,) * 4)), [Arrival(0, 10, 50)]).run()
    assert everything.replicas[0].steps == 10


def test_a_draft_costs_what_a_token_of_a_prompt_does_at_its_place() -> None:
    run = Service(service(engine(acceptance=(0.0, 0.0))), [Arrival(0, 10, 3)]).run()
    first = LATENCY.step([(0, 12)], 0, 0)
    second = LATENCY.step([(11, 1)], 1, 11)
    third = LATENCY.step([], 1, 12)
    assert run.finished.times("e2e")[0] == pytest.approx(first + second + third)


@pytest.mark.parametrize("acceptance", [(1.2,), (-0.1,), (0.5,) * 65])
def test_acceptance_is_of_shares_and_not_of_too_many_drafts(acceptance: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="acceptance"):
        engine(acceptance=acceptance)
