"""What `recommend` says would help does, and what is not known of an API is said."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from headrace.catalog import Catalog
from headrace.plan.quantity import Quantity
from headrace.plan.recommendation import Question, question_of, recommend
from headrace.plan.recommendation.apis import _e2e, _too_slow, _unchecked
from headrace.plan.recommendation.breach import Breach, RuledOut, RuledOutBy
from headrace.plan.recommendation.closest import nothing_fits
from headrace.plan.recommendation.question import parse_slo
from headrace.plan.recommendation.recommendation import Miss
from headrace.plan.recommendation.remedies import changed, remedy_of

DAY = dt.date(2026, 11, 22)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.load()


@pytest.mark.long
def test_each_remedy_was_planned(catalog: Catalog) -> None:
    question = question_of(
        catalog, "chat", DAY, slo="ttft:1000", rate=2.0, budget_usd=5.0,
        hardware=("rtx-4090", "h100-sxm"),
    )  # fmt: skip
    found = recommend(catalog, question)
    assert found.left == 0 and found.nearest and found.nearest[0].options
    for miss in found.nearest:
        asked = changed(question, miss.options)
        assert asked is not None and recommend(catalog, asked).left > 0


def test_options_that_do_not_help_are_not_said(catalog: Catalog) -> None:
    question = question_of(
        catalog, "chat", DAY, slo="", private=True, hardware=("this",), least_parameters=9e9
    )
    found = recommend(catalog, question)  # nothing was measured of this machine
    assert found.left == 0
    assert not any(one.options for one in found.nearest)
    assert found.nothing_fits == (
        "nothing here fits, and no other figure would change that: this machine: it has not been "
        "measured: run `headrace bench machine`"
    )
    assert found.as_dict()["nothing_fits"] == found.nothing_fits


def test_a_remedy_grows_until_it_helps(catalog: Catalog) -> None:
    question = question_of(catalog, "chat", DAY, budget_usd=5.0)
    size = Breach(rule="rule-usual-size", text="", excess=0.5, option="--min-quality 8")
    dear = Breach(rule="rule-budget", text="", excess=9.0, option="--budget 50")
    miss = RuledOut(name="m", breaches=(size,), model="qwen3-0.6b")

    def plan(asked: Question) -> tuple[bool, list[RuledOut]]:
        if (asked.budget_usd or 0) < 50:
            return False, [RuledOut(name="m on x", breaches=(dear,), model="qwen3-0.6b")]
        return asked.least_parameters == 8, []

    remedy = remedy_of(question, miss, plan)
    assert remedy is not None and remedy.options == ("--min-quality 8", "--budget 50")
    assert {one.rule for one in remedy.breaches} == {"rule-usual-size", "rule-budget"}
    assert remedy_of(question, miss, lambda _: (False, [])) is None


def test_the_sentence_where_nothing_fits() -> None:
    too_slow = Breach(rule="rule-tpot", text="TPOT is 9 ms, 1 ms over 8 ms", excess=0.1)
    too_big = Breach(rule="rule-memory", text="it takes 30 GB of 24", excess=0.2)
    helped = Miss(name="m on x", breaches=(too_slow,), options=("--slo tpot:9",), remedies=())
    stuck = Miss(name="m on y", breaches=(too_big,), options=(), remedies=("fewer bits",))
    out = RuledOutBy(
        rule="rule-private", says="prompts stay", remedy="omit --private", source="s", count=9,
        examples=("m by P: prompts go to P",),
    )  # fmt: skip
    unknown = replace(out, rule="rule-backend", remedy="other hardware", examples=("r on x: cpu",))
    assert nothing_fits((helped, stuck), ()) == (
        "nothing here fits; closest is m on x: TPOT is 9 ms, 1 ms over 8 ms; it fits with "
        "--slo tpot:9"
    )
    assert nothing_fits((stuck,), ()) == (
        "nothing here fits; closest is m on y: it takes 30 GB of 24; what would help: fewer bits"
    )
    assert nothing_fits((), (out, unknown)).endswith("r on x: cpu; what would help: other hardware")
    assert nothing_fits((), (out,)).endswith("prompts go to P; what would help: omit --private")
    assert "name others" in nothing_fits((), ())


def test_an_answer_with_options_has_no_such_sentence(catalog: Catalog) -> None:
    question = question_of(
        catalog, "chat", DAY, hardware=("h100-sxm",), models=("qwen3-8b",), private=True
    )
    found = recommend(catalog, question)
    assert found.left > 0
    assert found.nothing_fits == ""


def test_questions_are_changed_as_options_say(catalog: Catalog) -> None:
    question = question_of(catalog, "chat", DAY)
    asked = changed(question, ["--slo 'ttft:p95<2s'", "--max-devices 9", "--any-licence"])
    assert asked is not None and asked.any_licence and asked.max_devices == 9
    assert [one.text for one in asked.slo] == ["ttft:p95<2000ms"]
    assert changed(question, ["--context 100"]) is None  # prompt and output are longer
    assert changed(question, ["--wish more"]) is None


def published(name: str, value: float) -> Quantity:
    return Quantity(f"x.{name}", name, value, "s", "O7", (), value * 0.9, value * 1.1)


def test_limits_on_apis(catalog: Catalog) -> None:
    question = replace(question_of(catalog, "chat", DAY), slo=parse_slo("e2e:1s,ttft:p95<500ms"))
    ttft, tpot = published("ttft", 0.4), published("tpot", 0.01)
    e2e = _e2e("x", question, ttft, tpot)
    assert e2e is not None and e2e.value == pytest.approx(0.4 + 255 * 0.01)
    assert e2e.formula == "F3" and e2e.band[0] == pytest.approx(e2e.value * 0.9)
    assert _e2e("x", question, None, tpot) is None
    [slow] = _too_slow(question, {"ttft": ttft, "tpot": tpot, "e2e": e2e})
    assert slow.rule == "rule-e2e"
    # The other limit stays.
    assert slow.option == "--slo 'e2e:2950ms,ttft:p95<500ms'"
    [mark] = _unchecked(question, {"ttft": ttft, "tpot": tpot, "e2e": None})
    assert mark.rule == "rule-api-speed"
    assert mark.text == (
        "not checked, as they are not published: e2e:1000ms; not checked, as only a mean is "
        "published: ttft:p95<500ms"
    )
    assert not _unchecked(replace(question, slo=()), {"ttft": None, "tpot": None, "e2e": None})
