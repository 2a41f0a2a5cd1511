"""Streams through guardrails: any way of cutting them, in any dialect, lets the same through."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.gateway.building.dialects import client_sides
from headrace.gateway.guards.action import Acted, Action, GuardBlockedError
from headrace.gateway.guards.guard import Finder, Guard, Subject, Verdict
from headrace.gateway.guards.originals import Originals
from headrace.gateway.guards.patterns import Patterns, longest_match_chars
from headrace.gateway.guards.personal_data import PersonalData
from headrace.gateway.guards.replace import replaced_text
from headrace.gateway.guards.stream import StreamGuards
from headrace.gateway.guards.stream_pieces import Pieces
from headrace.gateway.guards.tool_rules import ToolRules
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.event import (
    ChoiceEnd,
    Event,
    PartDelta,
    PartEnd,
    PartStart,
    ReplyEnd,
    ReplyStart,
    ReplyUsage,
)
from headrace.protocol.neutral.usage import TokenUsage

DIALECTS = ("openai-chat", "openai-responses", "anthropic", "ollama")
SIDES = client_sides()


def guard(finder: Finder | None = None, action: Action = "redact") -> Guard:
    return Guard(name="g", on=frozenset(("output",)), action=action, finder=finder)


def events(words: Iterable[str], tool: tuple[str, Iterable[str]] | None = None) -> list[Event]:
    """An answer's events, its text in these pieces."""
    told: list[Event] = [
        ReplyStart(id="x", model="m"),
        PartStart(choice=0, part=0, kind="text"),
        *(PartDelta(choice=0, part=0, text=one) for one in words),
        PartEnd(choice=0, part=0),
    ]
    if tool is not None:
        told += [
            PartStart(choice=0, part=1, kind="tool_call", id="c1", name=tool[0]),
            *(PartDelta(choice=0, part=1, text=one) for one in tool[1]),
            PartEnd(choice=0, part=1),
        ]
    return [
        *told,
        ChoiceEnd(choice=0, reason="tool_calls" if tool else "stop"),
        ReplyUsage(usage=TokenUsage(input_tokens=1, output_tokens=1)),
        ReplyEnd(),
    ]


def written(dialect: str, told: Iterable[Event]) -> bytes:
    call = ChatCall(dialect=dialect, model="m", messages=(), stream=True, stream_usage=True)
    writer = SIDES[dialect].stream_writer(call)
    return b"".join(writer.write(one) for one in told)


def text_in(dialect: str, stream: bytes) -> list[str]:
    """Every text of a stream: by channels, and those told as a whole."""
    texts: dict[object, str] = {}
    for piece in Pieces(dialect).feed(stream):
        for at, growth in enumerate(piece.growths):
            name = (id(piece), at) if growth.whole else growth.channel
            texts[name] = texts.get(name, "") + growth.text
    return [one for one in texts.values() if one]


async def through(
    dialect: str, stream: bytes, guards: list[Guard], cuts: Iterable[int] = ()
) -> tuple[bytes, list[Acted]]:
    acted: list[Acted] = []
    passing = StreamGuards(guards, Subject(on="output", passages=(), dialect=dialect), acted.append)
    bounds = [0, *sorted(cuts), len(stream)]
    out = b"".join(passing.feed(stream[one:two]) for one, two in itertools.pairwise(bounds))
    return out + await passing.end(), acted


def pieces_of(text: str, cuts: Iterable[int]) -> list[str]:
    bounds = [0, *sorted({one % (len(text) + 1) for one in cuts}), len(text)]
    return [text[one:two] for one, two in itertools.pairwise(bounds) if two > one]


def in_one_go(finder: Finder, text: str) -> str:
    return replaced_text(text, finder.find(text, 0))


SECRETS = ("the secret word", "ada.lovelace@example.com", "4111 1111 1111 1111",
           "sk-abcdefghijklmnopqrstuvwxyz0123456789")  # fmt: skip
FINDERS: tuple[Callable[[], Finder], ...] = (
    lambda: Patterns(("the secret w[a-z]{2}d", r"\bsk-[a-z0-9]+"), "[X]", 64),
    lambda: PersonalData(("email", "credit_card", "api_key"), 16),
)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("secret", SECRETS)
async def test_a_match_is_never_let_through_whatever_the_cut(dialect: str, secret: str) -> None:
    text = f"Well, {secret}, and then some."
    for make in FINDERS:
        wanted = in_one_go(make(), text)
        for at in range(len(text) + 1):
            stream = written(dialect, events(pieces_of(text, (at,))))
            out, _ = await through(dialect, stream, [guard(make())])
            assert set(text_in(dialect, out)) == {wanted}, at


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(DIALECTS),
    st.lists(st.sampled_from((*SECRETS, " ", ", ", "x", "a b c " * 30, "é", "\n")), max_size=8),
    st.lists(st.integers(0, 1000), max_size=30),
    st.lists(st.integers(0, 5000), max_size=5),
    st.sampled_from(range(len(FINDERS))),
)
async def test_any_cuts_of_texts_and_bytes_give_what_one_piece_gives(
    dialect: str, parts: list[str], cuts: list[int], bytes_cuts: list[int], number: int
) -> None:
    text = "".join(parts)
    finder = FINDERS[number]()
    stream = written(dialect, events(pieces_of(text, cuts)))
    out, _ = await through(
        dialect, stream, [guard(finder)], [one % (len(stream) + 1) for one in bytes_cuts]
    )
    wanted = in_one_go(finder, text)
    assert set(text_in(dialect, out)) == ({wanted} if wanted else set())
    if wanted == text:
        assert out == stream, "what nothing is found in is passed on byte for byte"


@pytest.mark.long
@settings(max_examples=100, deadline=None)
@given(st.text("abc \n", max_size=60), st.lists(st.integers(0, 60), max_size=20))
async def test_patterns_of_bounded_length_are_seen_whole(text: str, cuts: list[int]) -> None:
    """Overlaps, growing matches and what stands around them are as in the whole text."""
    for patterns in (("aa",), (r"\bab?c{1,3}\b",), ("a.c", "bc"), ("(?:ab){2,3}",), ("c$",)):
        finder = Patterns(patterns, "<X>", 16)
        stream = written("openai-chat", events(pieces_of(text, cuts)))
        out, _ = await through("openai-chat", stream, [guard(finder)])
        assert "".join(text_in("openai-chat", out)) == in_one_go(finder, text)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_text_streams_on_behind_the_window(dialect: str) -> None:
    words = [f"word{number} " for number in range(200)]
    stream = written(dialect, events(words))
    passing = StreamGuards(
        [guard(Patterns(("internal only",), "[X]", 64))],
        Subject(on="output", passages=(), dialect=dialect),
        [].append,
    )
    half = passing.feed(stream[: len(stream) // 2])
    assert len(half) > len(stream) // 4
    assert half + passing.feed(stream[len(stream) // 2 :]) + await passing.end() == stream


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_arguments_of_tool_calls_are_looked_at(dialect: str) -> None:
    arguments = json.dumps({"to": "ada@example.com"})
    stream = written(dialect, events(["Hi"], ("send", pieces_of(arguments, range(0, 99, 3)))))
    out, _ = await through(dialect, stream, [guard(PersonalData(("email",), 16))])
    assert b"ada@" not in out and b"example" not in out and b"[EMAIL]" in out


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_tool_that_is_not_allowed_stops_the_stream_at_its_name(dialect: str) -> None:
    stream = written(dialect, events(["Hi"], ("delete_all", ["{}"])))
    tools = Guard(
        name="t",
        on=frozenset(("output",)),
        action="block",
        tools=ToolRules((), ("delete_*",)),
    )
    with pytest.raises(GuardBlockedError):
        await through(dialect, stream, [tools])
    fine = written(dialect, events(["Hi"], ("search", ["{}"])))
    assert (await through(dialect, fine, [tools]))[0] == fine


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_what_needs_the_whole_answer_holds_it_and_may_replace_it(dialect: str) -> None:
    async def shout(subject: Subject) -> Verdict:
        return Verdict("loud", tuple(one.text.upper() for one in subject.passages))

    stream = written(dialect, events(["one ", "two ", "three"]))
    loud = Guard(name="l", on=frozenset(("output",)), action="redact", look=shout)
    passing = StreamGuards([loud], Subject(on="output", passages=(), dialect=dialect), [].append)
    assert passing.holds_all and passing.feed(stream) == b""
    assert set(text_in(dialect, await passing.end())) == {"ONE TWO THREE"}
    watching = Guard(name="l", on=frozenset(("output",)), action="warn", look=shout)
    out, acted = await through(dialect, stream, [watching])
    assert out == stream and acted == [Acted("l", "warn", "loud")]


async def test_originals_come_back_across_cuts() -> None:
    originals = Originals()
    text = f"to {originals.mark('[EMAIL]', 'a@b.c')} and {originals.mark('[EMAIL]', 'd@e.f')}"
    for at in range(len(text)):
        stream = written("openai-chat", events(pieces_of(text, (at,))))
        out, _ = await through("openai-chat", stream, [guard(originals)])
        assert text_in("openai-chat", out) == ["to a@b.c and d@e.f"]


async def test_what_comes_back_into_arguments_is_json_still() -> None:
    originals = Originals()
    arguments = json.dumps({"say": originals.mark("[X]", 'a "quoted"\nword')})
    stream = written("openai-chat", events(["Hi"], ("say", pieces_of(arguments, range(0, 99, 4)))))
    out, _ = await through("openai-chat", stream, [guard(originals)])
    assert json.loads(text_in("openai-chat", out)[1]) == {"say": 'a "quoted"\nword'}


async def test_several_guardrails_see_what_those_before_them_left() -> None:
    both = [
        guard(Patterns(("ada",), "bob", 16)),
        guard(Patterns(("bob and eve",), "them", 16)),
    ]
    stream = written("openai-chat", events(pieces_of("So ada and eve went", range(20))))
    out, _ = await through("openai-chat", stream, both)
    assert "".join(text_in("openai-chat", out)) == "So them went"


async def test_an_event_that_nobody_can_read_does_not_pass() -> None:
    stream = (
        b'data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}\n\ndata: {"secr\n\n: ping\n\n'
    )
    out, _ = await through("openai-chat", stream + b"data: {cut", [guard(Patterns(("x",), "", 16))])
    assert b"secr" not in out and b"cut" not in out and b": ping" in out and b"hi" in out


async def test_a_match_without_an_end_ends_the_stream() -> None:
    stream = written("openai-chat", events(["a" * 1000] * 100))
    with pytest.raises(GuardBlockedError, match="no end"):
        await through("openai-chat", stream, [guard(Patterns(("a+",), "", 16))])


async def test_log_probabilities_do_not_tell_what_was_redacted() -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "secret"}, "finish_reason": "stop",
                          "logprobs": {"content": [{"token": "secret"}]}}]}  # fmt: skip
    stream = b"data: " + json.dumps(chunk).encode() + b"\n\n"
    out, _ = await through("openai-chat", stream, [guard(Patterns(("secret",), "[X]", 16))])
    assert b"secret" not in out and b'"logprobs": null' in out


@pytest.mark.parametrize(
    ("pattern", "longest"),
    [
        ("(?i)internal only", 13), ("a{2,5}b?", 6), ("a+", None), ("a.*b", None), (r"\bx\b", 1),
        ("a{,3}", None), (r"\pL", None), ("[[:alpha:]]{3}", None), ("(a|bcd){2}", 6),
    ],
)  # fmt: skip
def test_how_long_a_match_may_be(pattern: str, longest: int | None) -> None:
    assert longest_match_chars(pattern) == longest
