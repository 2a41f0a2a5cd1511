"""What makes an answer no good without asking anybody, and how sure a model was."""

from __future__ import annotations

import math
from typing import Any

import pytest

from headrace.gateway.serving.composed.answer_rules import objection
from headrace.gateway.serving.composed.choosing import named
from headrace.gateway.serving.composed.logprobs import share_of, sureness
from headrace.gateway.settings.cascade import AnswerRuleSettings, LogprobSettings
from headrace.protocol.neutral.call import ChatCall, OutputFormat, Tool
from headrace.protocol.neutral.part import Part, Refusal, Text, ToolCall
from headrace.protocol.neutral.reply import ChatReply, Choice

RULES = AnswerRuleSettings()
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
PLAIN = ChatCall(dialect="", model="m", messages=())
TOOLS = ChatCall(dialect="", model="m", messages=(), tools=(Tool(name="f", parameters=SCHEMA),))
JSON = ChatCall(dialect="", model="m", messages=(), output=OutputFormat(kind="json"))
SHAPED = ChatCall(
    dialect="", model="m", messages=(), output=OutputFormat(kind="schema", schema=SCHEMA)
)


def reply(*parts: Part | str, **more: Any) -> ChatReply:
    each = tuple(Text(text=one) if isinstance(one, str) else one for one in parts)
    return ChatReply(dialect="", id="", model="", choices=(Choice(parts=each, **more),))


def call(arguments: str, name: str = "f") -> ToolCall:
    return ToolCall(id="1", name=name, arguments=arguments)


@pytest.mark.parametrize(
    ("answer", "of"),
    [
        (reply("Four."), PLAIN),
        (reply("It is rude to say I cannot help with that."), PLAIN),
        (reply('{"a": 1}'), JSON),
        (reply('{"n": 1}'), SHAPED),
        (reply(call('{"n": 1}')), TOOLS),
    ],
)
def test_a_good_answer(answer: ChatReply, of: ChatCall) -> None:
    assert objection(answer, of, RULES) is None


@pytest.mark.parametrize(
    ("answer", "of", "said"),
    [
        (reply("I\u2019m sorry, but I can\u2019t do that."), PLAIN, "a refusal"),
        (reply(Refusal("no")), PLAIN, "a refusal"),
        (reply(""), PLAIN, "0 characters"),
        (reply("Four", finish="length"), PLAIN, "cut off"),
        (reply("x", finish="content_filter"), PLAIN, "content filter"),
        (reply("[1]"), JSON, "not the requested JSON"),
        (reply("Sure: {}"), JSON, "not the requested JSON"),
        (reply('{"n": "1"}'), SHAPED, "not the requested JSON"),
        (reply(call('{"n": "1"}')), TOOLS, "arguments that f"),
        (reply(call('{"n": ')), TOOLS, "arguments that f"),
        (reply(call("{}", "g")), TOOLS, "an unknown tool"),
    ],
)
def test_a_bad_answer(answer: ChatReply, of: ChatCall, said: str) -> None:
    assert said in (objection(answer, of, RULES) or "")


def test_rules_can_be_off_and_more_phrases_given() -> None:
    off = AnswerRuleSettings(refusals=False, json=False, length=False, min_chars=0)
    assert objection(reply("I cannot help with that", finish="length"), JSON, off) is None
    more = AnswerRuleSettings(refusal_phrases=("Das weiß ich nicht",))
    assert objection(reply("das WEISS ich nicht."), PLAIN, more) == "a refusal"


def test_a_schema_that_points_elsewhere_is_never_fetched() -> None:
    elsewhere = OutputFormat(kind="schema", schema={"$ref": "http://127.0.0.1:9/secret"})
    of = ChatCall(dialect="", model="m", messages=(), output=elsewhere)
    assert objection(reply("{}"), of, RULES) is None


def tokens(*probabilities: float, lead: float = 0.1) -> ChatReply:
    listed = [
        {"token": "x", "logprob": math.log(one), "top_logprobs": [
            {"token": "x", "logprob": math.log(one)},
            {"token": "y", "logprob": math.log(one - lead)},
        ]}
        for one in probabilities
    ]  # fmt: skip
    return reply("x", logprobs=listed)


def test_sureness_by_each_measure() -> None:
    answer = tokens(0.9, 0.9, 0.2, 0.3, 0.9)
    mean = sureness(answer, LogprobSettings(measure="mean"))
    assert mean == pytest.approx((0.9**3 * 0.2 * 0.3) ** (1 / 5))
    window = sureness(answer, LogprobSettings(measure="window", window_tokens=2))
    assert window == pytest.approx((0.2 * 0.3) ** 0.5)
    longer = sureness(answer, LogprobSettings(measure="window", window_tokens=50))
    assert longer == pytest.approx(mean)
    assert sureness(answer, LogprobSettings(measure="margin")) == pytest.approx(0.1)


@pytest.mark.parametrize("listed", [None, [], [{}], [{"logprob": "no"}], [{"logprob": True}]])
def test_without_logprobs_nothing_is_known(listed: Any) -> None:
    assert sureness(reply("x", logprobs=listed), LogprobSettings()) is None


def test_one_impossible_token_is_bounded() -> None:
    found = sureness(reply("x", logprobs=[{"logprob": -9999.0}]), LogprobSettings())
    assert found == pytest.approx(math.exp(-30))


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("hard", "hard"), ('{"class": "Hard"}', "hard"), ("simple, not hard", "simple"),
        ("hardly", None), ("very-hard", "very-hard"), ("", None),
    ],
)  # fmt: skip
def test_the_class_a_router_names(said: str, name: str | None) -> None:
    assert named(said, ("simple", "hard", "very-hard")) == name


def test_shares_of_words_that_begin_alike_are_nobodys() -> None:
    listed = [{"token": "s", "logprob": -0.1}, {"token": "hard", "logprob": -2.0}]
    answer = reply("s", logprobs=[{"logprob": -0.1, "top_logprobs": listed}])
    assert share_of(answer, ("simple", "sane", "hard")) == 0.0
