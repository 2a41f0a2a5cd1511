"""Personal data in many texts and in long ones: found as in each text by itself, and looked for no
longer than somebody waits."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.gateway.guards.check_text import check_text
from headrace.gateway.guards.findings import findings
from headrace.gateway.guards.guard import Guard, Match, Subject
from headrace.gateway.guards.looking import go_on
from headrace.gateway.guards.personal_data import PersonalData
from headrace.gateway.guards.text_span import TextSpan
from headrace.gateway.pii.span import KINDS

ALL = PersonalData(KINDS, 256)
BLOCK = "-----BEGIN PRIVATE KEY-----"
PIECES = st.sampled_from(
    [
        "a@example.org", "4111 1111 1111 1111", "4111111111111111", "+49 30 1234567", "030 ", "1",
        "DE89 3704 0044 0532 0130 00", "10.0.0.1", "2001:db8::1", "219-09-9999", "sk-",
        "a1b2c3d4e5", BLOCK, "-----END PRIVATE KEY-----", "\uff0d----BEGIN PRIVATE KEY-----", " ",
        ".", "@", "-", "\0", "x", "\n", "é", "05-", "(212) 555-0123", ":", "/", "_",
    ]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=8).map("".join)


class Counting(PersonalData):
    """looks: how often it was asked, and how many characters that were."""

    def __init__(self) -> None:
        super().__init__(KINDS, 256)
        self.looks: list[int] = []
        self.began = threading.Event()

    def find(self, text: str, start: int) -> list[Match]:
        self.looks.append(len(text))
        self.began.set()
        return super().find(text, start)


@pytest.mark.long
@settings(max_examples=400, deadline=None)
@given(st.lists(TEXTS, max_size=8))
@example([BLOCK, "a@example.org", "4111111111111111"])
@example(["4111", "1111", "1111", "1111"])
def test_texts_beside_each_other_are_found_in_as_alone(texts: list[str]) -> None:
    assert list(ALL.find_each(texts, go_on)) == [ALL.find(one, 0) for one in texts]


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(
    st.lists(PIECES.filter(lambda one: one != BLOCK), min_size=1, max_size=12), st.integers(0, 9)
)
def test_a_long_text_is_found_in_as_a_whole(pieces: list[str], odd: int) -> None:
    # Words between them: what is one run for longer than a slice's window may be taken apart.
    text = "words and " * 1500 + "x" * odd + " and ".join(pieces * 200)
    assert list(ALL.find_each([text], go_on)) == [ALL.find(text, 0)]


@pytest.mark.parametrize("at", [16_384 - 1000, 16_384 - 30, 16_384, 2 * 16_384 - 5])
@pytest.mark.parametrize(
    "secret",
    [
        BLOCK + "\nMIIE" * 8000 + "\n-----END PRIVATE KEY-----",
        "eyJ" + "a1." * 700 + "b2",
        "sk-" + "a1" * 9000,
        "4111 1111 1111 1111",
    ],
)
def test_what_is_cut_by_a_slice_is_found_whole(secret: str, at: int) -> None:
    text = f"{'x' * (at - 1)} {secret} and a@example.org"
    (found,) = ALL.find_each([text], go_on)
    assert found == ALL.find(text, 0)
    assert (found[0].start, found[0].end) == (at, at + len(secret))


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(st.lists(TEXTS | st.integers() | st.floats(allow_nan=False) | st.just(4111e12), max_size=8),
       st.booleans())  # fmt: skip
def test_arguments_that_are_passed_over_have_nothing(values: list[object], ascii: bool) -> None:
    text = json.dumps(values, ensure_ascii=ascii)
    said = [one for one in values if isinstance(one, str)]
    said += [f"{one:.0f}" for one in values if not isinstance(one, str)]
    if any(ALL.find(one, 0) for one in said):
        assert ALL.may_find(text)


def test_numbers_of_a_call_are_looked_at_together() -> None:
    finder = Counting()
    values = [{"at": at, "card": 4_111_111_111_111_111} for at in range(10_000_000, 10_002_000)]
    text = json.dumps({"values": values})
    found = findings(finder, [TextSpan((), "assistant", "arguments", text)], None)
    assert len(found.matches) == 2000 and "4111" not in found.texts[0]
    several = [TextSpan((at,), "tool", "argument", str(at)) for at in range(20_000)]
    findings(finder, several, None)
    assert len(finder.looks) < 40 and sum(finder.looks) < 4 * len(text)


async def test_a_look_ends_once_nobody_waits_for_it() -> None:
    finder = Counting()
    guard = Guard(name="pii", on=frozenset(("input",)), action="redact", finder=finder)
    texts = (TextSpan(("a",), "user", "text", "05-" * 400_000),)
    looking = asyncio.ensure_future(check_text([guard], Subject(on="input", passages=texts)))
    await asyncio.to_thread(finder.began.wait, 10)
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking
    looks = len(finder.looks)
    await asyncio.sleep(0.5)
    ended = len(finder.looks)
    await asyncio.sleep(0.3)
    assert len(finder.looks) == ended <= looks + 1 < len("05-" * 400_000) / 16_384
