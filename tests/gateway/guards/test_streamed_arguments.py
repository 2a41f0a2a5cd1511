"""Arguments of tools in streams: read as JSON is, however their escapes are cut."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.gateway.guards.action import GuardBlockedError
from headrace.gateway.guards.findings import findings
from headrace.gateway.guards.growing_arguments import GrowingArguments
from headrace.gateway.guards.guard import Finder
from headrace.gateway.guards.originals import Originals
from headrace.gateway.guards.patterns import Patterns
from headrace.gateway.guards.personal_data import PersonalData
from headrace.gateway.guards.replace import merged, replaced_text
from headrace.gateway.guards.text_span import TextSpan
from tests.gateway.guards.test_serving import BODIES
from tests.gateway.guards.test_serving import settings as gateway_settings
from tests.gateway.guards.test_stream import DIALECTS, events, guard, pieces_of, text_in, through
from tests.gateway.guards.test_stream import written as stream_of
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import STREAM_HEAD, chunk, framed
from tests.gateway.upstream.scripted import served

WORDS = Patterns(("secret",), "[X]", 16)
# The word with some, and with all of its letters behind escapes.
SECRETS = (r"s\u0065cret", r"\u0073\u0065\u0063\u0072\u0065\u0074", r"secr\u0065t")


def grown(finder: Finder, pieces: list[str]) -> str:
    """The arguments as they go on, once they are whole."""
    growing = GrowingArguments(finder)
    matches = []
    for piece in pieces:
        growing.grow(piece)
        before = growing.cleared
        matches += growing.found()
        assert before <= growing.cleared <= growing.total
    growing.end()
    matches += growing.found()
    assert growing.cleared == growing.total == sum(map(len, pieces))
    return replaced_text("".join(pieces), merged(matches))


def whole(finder: Finder, text: str) -> str:
    """What becomes of the same arguments in a whole answer."""
    passage = TextSpan(("arguments",), "assistant", "arguments", text)
    return findings(finder, [passage], None).texts[0]


@pytest.mark.parametrize("dialect", [one for one in DIALECTS if one != "ollama"])
@pytest.mark.parametrize("secret", SECRETS)
async def test_a_word_behind_escapes_is_found_wherever_it_is_cut(dialect: str, secret: str) -> None:
    arguments = f'{{"say": "a {secret} b\\n", "n": 1}}'
    for at in range(len(arguments) + 1):
        told = stream_of(dialect, events(["Hi"], ("send", pieces_of(arguments, (at,)))))
        out, acted = await through(dialect, told, [guard(WORDS)])
        wanted = '{"say": "a [X] b\\n", "n": 1}'
        assert wanted in text_in(dialect, out) and arguments not in text_in(dialect, out), at
        assert [one.reason for one in acted] == ["found pattern 1"]
        with pytest.raises(GuardBlockedError):
            await through(dialect, told, [guard(WORDS, "block")])


async def test_nothing_of_a_word_goes_out_before_it_is_seen_whole() -> None:
    arguments = '{"say": "' + r"\u0073\u0065\u0063\u0072\u0065\u0074" + '"}'
    told = stream_of("openai-chat", events(["Hi"], ("send", list(arguments))))
    with pytest.raises(GuardBlockedError) as raised:
        await through("openai-chat", told, [guard(WORDS, "block")])
    assert b"u0073" not in raised.value.passed


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (r'{"a": "\ud83d\ude00 here"}', '{"a": "[X] here"}'),
        (r'{"a": "\ud83dx\ude00"}', None),
        (r'{"a": "\ud83d\ud83d\ude00"}', r'{"a": "\ud83d[X]"}'),
        ('{"a": "😀"}', '{"a": "[X]"}'),
        (r'{"\ud83D\uDE00": 1}', '{"[X]": 1}'),
    ],
)
def test_pairs_of_surrogates_are_one_character(arguments: str, wanted: str | None) -> None:
    finder = Patterns(("😀",), "[X]", 16)
    for at in range(len(arguments) + 1):
        assert grown(finder, pieces_of(arguments, (at,))) == (wanted or arguments)


@pytest.mark.parametrize(
    "arguments", ['{"a": "\\', '{"a": "\\u', '{"a": "x\\u00', '{"a": "\\ud83d', '{"a": "\\ud83d\\u']
)
async def test_arguments_that_end_within_an_escape_pass_as_they_are(arguments: str) -> None:
    assert grown(WORDS, list(arguments)) == arguments
    assert grown(WORDS, list('["secret", ' + arguments)) == '["[X]", ' + arguments
    told = stream_of("openai-chat", events(["Hi"], ("send", list(arguments))))
    assert (await through("openai-chat", told, [guard(WORDS)]))[0] == told


@pytest.mark.parametrize("at", range(0, 20, 3))
def test_numbers_are_read_and_stay_json(at: int) -> None:
    arguments = '{"card": 4111111111111111, "n": 4.111111111111111e15, "x": [-1, 2]}'
    told = grown(PersonalData(("credit_card",), 16), pieces_of(arguments, (at, at + 9)))
    assert json.loads(told) == {"card": "[CREDIT_CARD]", "n": "[CREDIT_CARD]", "x": [-1, 2]}


def test_a_number_that_has_no_end_is_not_waited_for() -> None:
    growing = GrowingArguments(PersonalData(("credit_card",), 16))
    for _ in range(100):
        growing.grow("1" * 100)
        growing.found()
    assert growing.held_chars < 5000 and growing.cleared > 5000


def test_an_address_behind_a_line_break_leaves_the_escape_whole() -> None:
    arguments = json.dumps({"to": "dear\nada@example.com\n"})
    told = grown(PersonalData(("email",), 16), list(arguments))
    assert json.loads(told) == {"to": "dear\n[EMAIL]\n"}


def test_matches_of_more_than_one_value_are_found_as_they_are_written() -> None:
    finder = Patterns(('"a": "b"',), "[X]", 16)
    assert grown(finder, list('{"a": "b", "c": 1}')) == '{[X], "c": 1}'


@pytest.mark.parametrize(
    "text", ["the secret", 'print("secret', r'"\q secret"', "{ a: 'secret' }", '"x\n" secret', "-"]
)
def test_what_is_no_json_is_looked_at_too(text: str) -> None:
    assert grown(WORDS, list(text)) == text.replace("secret", "[X]")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (r'["a s\u0065cret', '["a [X]'),
        ('{"q": "secret \\', '{"q": "[X] \\'),
        (r'"x", "say \"secret\" ', r'"x", "say \"[X]\" '),
    ],
)
def test_a_text_that_has_no_end_is_read_too(text: str, wanted: str) -> None:
    assert whole(WORDS, text) == grown(WORDS, [text]) == wanted


def test_marks_come_back_from_behind_escapes() -> None:
    originals = Originals()
    mark = originals.mark("[X]", 'a "quoted" word')
    escaped = "".join(f"\\u{ord(one):04x}" for one in mark)
    assert json.loads(grown(originals, list(f'["{escaped}"]'))) == ['a "quoted" word']


async def test_a_window_is_of_what_is_read_not_of_what_is_written() -> None:
    """Six characters stand for one: no more of the text is held than of a plain one."""
    finder = Patterns(("b+",), "[X]", 65_536)
    escaped = r"\u0061" * 60_000
    assert grown(finder, pieces_of(f'["{escaped}"]', range(0, 400_000, 5000))) == f'["{escaped}"]'
    told = stream_of("openai-chat", events(["Hi"], ("send", ['["', escaped, '"]'])))
    assert (await through("openai-chat", told, [guard(finder)]))[0] == told


async def test_text_for_a_tool_that_takes_any_is_no_json() -> None:
    """A custom tool's input: its backslashes are its own."""
    told = [
        {"type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": '["C:\\sec'},
        {"type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": 'ret"]'},
    ]
    stream = b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in told)
    out, _ = await through("openai-responses", stream, [guard(Patterns(("secret",), '"', 16))])
    assert text_in("openai-responses", out) == ['["C:\\""]']


async def calls_with_escapes(_n: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
    """A tool call whose arguments are cut within an escape."""
    writer.write(STREAM_HEAD + framed(chunk({"role": "assistant", "content": "Well"})))
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}
    writer.write(framed(chunk({"tool_calls": [call]})))
    for piece in ('{"q": "a s\\u00', '65cret b", "n": 1', "}"):
        more = {"index": 0, "function": {"arguments": piece}}
        writer.write(framed(chunk({"tool_calls": [more]})))
    end = framed(chunk({}, "tool_calls")) + framed(b"data: [DONE]\n\n") + b"0\r\n\r\n"
    writer.write(end)


@pytest.mark.parametrize("action", ["block", "redact"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_through_a_whole_gateway_in_every_dialect(dialect: str, action: str) -> None:
    rules = {"kind": "regex", "patterns": ["secret"], "on": "output", "action": action,
             "default": True}  # fmt: skip
    path, body = BODIES[dialect]
    async with served(calls_with_escapes) as provider:
        app = gateway(gateway_settings(provider.origin, {"words": rules}), []).app
        told = await ask(app, {"model": "chat", **body, "stream": True}, path=path)
    assert told.status == 200
    read = "".join(text_in(dialect, told.body))
    if action == "redact":
        assert "a [REDACTED] b" in read
    else:
        assert b"words" in told.body, "it says which guardrail it was"
    for secret in ("secret", "u00", "65cret"):
        assert secret not in read and secret.encode() not in told.body


values = st.recursive(
    st.one_of(
        st.text('secrtx"\\/\n\t é😀@.', max_size=12),
        st.sampled_from(("the secret", "ada@example.com", "sésecret", 4111111111111111, 12, True)),
        st.none(),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text("sekrt ", max_size=6), inner)
    ),
    max_leaves=6,
)


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(
    value=values,
    escapes=st.randoms(use_true_random=False),
    cuts=st.lists(st.integers(0, 2000), max_size=12),
    number=st.sampled_from((0, 1)),
)
def test_what_goes_on_is_what_a_whole_answer_would_say(
    value: Any, escapes: Any, cuts: list[int], number: int
) -> None:
    text = escaped_more(json.dumps(value, ensure_ascii=escapes.random() < 0.5), escapes)
    assert json.loads(text) == value
    finder = (WORDS, PersonalData(("email", "credit_card"), 16))[number]
    told = grown(finder, pieces_of(text, cuts))
    assert json.loads(told) == json.loads(whole(finder, text))
    assert grown(finder, [text]) == told
    if whole(finder, text) == text:
        assert told == text


def escaped_more(text: str, source: Any) -> str:
    """The same JSON with letters of its strings behind escapes here and there."""
    out, in_string, at = [], False, 0
    while at < len(text):
        one = text[at]
        if one == "\\":
            end = at + (6 if text[at + 1] == "u" else 2)
            out.append(text[at:end])
            at = end
            continue
        in_string ^= one == '"'
        is_letter = in_string and one in "secrtadx@."
        out.append(f"\\u{ord(one):04x}" if is_letter and source.random() < 0.4 else one)
        at += 1
    return "".join(out)
