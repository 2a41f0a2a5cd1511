"""Which engine is asked, by what it has and how loaded it is."""

from __future__ import annotations

import random
from collections import Counter

from headrace.gateway.engines.order import EngineOrder
from headrace.gateway.engines.reading import EngineReading, engine_reading
from headrace.gateway.engines.state import EngineState
from headrace.gateway.routing.query import RoutingQuery
from headrace.gateway.settings.traffic import EngineSettings
from headrace.gateway.targets.target import Target
from tests.gateway.engines.scripted_engine import ScriptedEngine
from tests.gateway.routing.parts import asking, target

PROMPT = tuple(range(100, 116))  # 16 blocks, about 1,024 tokens


class Fleet:
    """Two engines with readings of 1000 s."""

    def __init__(self, *, by_prefix: bool = True) -> None:
        self.a, self.b = target("a/m"), target("b/m")
        self.state = EngineState((self.a, self.b))
        self.order = EngineOrder(self.state, EngineSettings(), by_prefix=by_prefix)
        self.source = random.Random(1)
        self.reads("a")
        self.reads("b")

    def reads(self, name: str, waiting: float = 0, running: float = 0, kv: float = 0.0) -> None:
        self.state.take(name, EngineReading(1000.0, waiting, running, kv, 5.0))

    def first(self, blocks: tuple[int, ...] = PROMPT, now_s: float = 1000.0) -> str:
        return self.scored(blocks, now_s)[0][0]

    def scored(
        self, blocks: tuple[int, ...] = PROMPT, now_s: float = 1000.0
    ) -> list[tuple[str, str]]:
        ask: RoutingQuery = asking()._replace(blocks=blocks)
        found = self.order((self.a, self.b), ask, self.source, now_s)
        return [(one.target.name, one.reason) for one in found]

    def had(self, one: Target, blocks: tuple[int, ...] = PROMPT) -> None:
        self.order.served(asking()._replace(blocks=blocks), one)


def test_equals_by_chance() -> None:
    fleet = Fleet()
    drawn = Counter(fleet.first() for _ in range(200))
    assert 60 < drawn["a/m"] < 140


def test_who_has_the_prefix_is_asked_and_the_reason_says_how_much() -> None:
    fleet = Fleet()
    fleet.had(fleet.b, PROMPT[:8])
    fleet.reads("b", waiting=1, running=3, kv=0.2)
    assert {fleet.first() for _ in range(20)} == {"b/m"}
    (_, reason), (_, other) = fleet.scored()
    assert reason == (
        "about 512 tokens of the prompt there; 1 waiting, 3 running, KV cache 20% used"
    )
    assert other.startswith("about 0 tokens")


def test_a_loaded_engine_is_passed_by_in_spite_of_its_prefix() -> None:
    fleet = Fleet()
    fleet.had(fleet.a)
    fleet.reads("a", waiting=5, running=8, kv=0.8)
    assert fleet.first() == "b/m"
    fleet.reads("a", waiting=1, running=8, kv=0.3)
    assert fleet.first() == "a/m"


def test_a_short_prefix_is_worth_less_than_a_queue() -> None:
    fleet = Fleet()
    short = PROMPT[:1]
    fleet.had(fleet.a, short)
    assert {fleet.first(short) for _ in range(20)} == {"a/m"}, "all else is equal"
    fleet.reads("a", waiting=2, running=1)
    assert fleet.first(short) == "b/m"


def test_an_uneven_load_is_evened_out_whatever_is_where() -> None:
    fleet = Fleet()
    fleet.had(fleet.a)
    fleet.reads("a", running=66)
    fleet.reads("b", running=1)
    assert fleet.scored()[0] == (
        "b/m", "load is uneven; 0 waiting, 1 running, KV cache 0% used",
    )  # fmt: skip
    fleet.reads("b", running=44)
    assert fleet.first() == "a/m", "the difference is below 64"


def test_what_was_sent_since_the_reading_counts_as_waiting() -> None:
    fleet = Fleet()
    fleet.had(fleet.a)
    for _ in range(20):
        fleet.a.health.began(1000.0)
    fleet.reads("b", kv=0.1)
    fleet.reads("a", kv=0.5, running=4)
    assert fleet.first() == "b/m"
    fleet.reads("a", kv=0.5, running=20)
    assert fleet.first() == "a/m", "they run"


def test_old_readings_are_not_used() -> None:
    fleet = Fleet()
    fleet.reads("a", waiting=9)
    assert fleet.first((), now_s=1004.9) == "b/m"
    drawn = {fleet.scored((), now_s=1005.1)[0] for _ in range(50)}
    assert drawn == {
        ("a/m", "about 0 tokens of the prompt there; no fresh metrics, serving 0 requests"),
        ("b/m", "about 0 tokens of the prompt there; no fresh metrics, serving 0 requests"),
    }


def test_an_engine_that_tells_nothing_is_not_taken_for_an_idle_one() -> None:
    fleet = Fleet()
    del fleet.state.readings["a"]
    fleet.reads("b", waiting=3, running=2)
    drawn = Counter(fleet.first(()) for _ in range(100))
    assert 25 < drawn["a/m"] < 75, "as loaded as the one that tells"


def test_engine_load_does_not_look_at_prefixes() -> None:
    fleet = Fleet(by_prefix=False)
    fleet.had(fleet.a)
    fleet.reads("a", kv=0.1)
    assert fleet.first() == "b/m"
    assert fleet.scored()[0][1] == "0 waiting, 0 running, KV cache 0% used"


def test_an_engine_that_was_started_anew_has_nothing() -> None:
    fleet = Fleet()
    fleet.had(fleet.a)
    fleet.state.take("a", EngineReading(1001.0, 0, 0, 0.0, 5.4))
    assert fleet.state.index.blocks == 16
    fleet.state.take("a", EngineReading(1002.0, 0, 0, 0.0, 90.0))
    assert fleet.state.index.blocks == 0


def test_readings() -> None:
    engine = ScriptedEngine()
    engine.waiting, engine.running, engine.kv = 2, 7, 0.25
    assert engine_reading(engine.text(), 3.0) == EngineReading(3.0, 2, 7, 0.25, 1000.0)
    for text in ("", "<html>", "vllm:num_requests_running 1\n", "vllm:num_requests_waiting{ x\n"):
        assert engine_reading(text, 0.0) is None
