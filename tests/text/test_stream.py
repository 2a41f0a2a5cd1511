"""Ids to deltas: where stop strings cut, and where each token's text begins."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.text import TextDelta, TextStream
from tests.text.vocabularies import byte_level, from_gguf, sentencepiece

BYTES = from_gguf(byte_level())
PIECES = from_gguf(sentencepiece())
END = BYTES.token_to_id("<|end|>") or 0


def ids_of(text: str) -> list[int]:
    return BYTES.encode(text, add_special_tokens=False)


def test_a_stop_string_in_the_middle_of_a_batch() -> None:
    stream = TextStream(BYTES, stops=["STOP"])
    ids = ids_of("ab STOP cd")
    delta = stream.feed(ids)
    assert (delta.text, delta.stop) == ("ab ", "STOP")
    assert BYTES.decode(ids[: delta.num_tokens]) == "ab STOP", "the completing token counts"
    assert len(delta.text_offsets) == delta.num_tokens
    assert stream.feed(ids) == TextDelta("")
    assert stream.finish() == TextDelta("")


@settings(max_examples=200)
@given(
    text=st.text(alphabet="hello wrdé<|end>", max_size=24),
    stops=st.lists(st.text(alphabet="hello é", min_size=1, max_size=3), max_size=2),
    cuts=st.lists(st.integers(0, 30), max_size=5),
)
def test_batches_make_no_difference(text: str, stops: list[str], cuts: list[int]) -> None:
    ids = ids_of(text)

    def run(parts: list[list[int]]) -> tuple[str, int, str | None, tuple[int, ...]]:
        stream = TextStream(BYTES, stops=stops)
        deltas = [stream.feed(part) for part in parts]
        deltas.append(stream.finish())
        return (
            "".join(delta.text for delta in deltas),
            sum(delta.num_tokens for delta in deltas),
            next((delta.stop for delta in deltas if delta.stop), None),
            sum((delta.text_offsets for delta in deltas), ()),
        )

    single = run([[token_id] for token_id in ids])
    bounds = [0, *sorted(cuts), len(ids)]
    assert run([ids[a:b] for a, b in pairwise(bounds)]) == single
    if single[2] is None:
        assert single[:2] == (BYTES.decode(ids), len(ids))
    else:
        assert not any(stop in single[0] for stop in stops)


def test_text_offsets() -> None:
    ids = ids_of("héllo 你!")
    delta = TextStream(BYTES, text_offset=100).feed(ids)
    text = BYTES.decode(ids)
    for position, (token_id, offset) in enumerate(zip(ids, delta.text_offsets, strict=True)):
        before = b"".join(BYTES.token_bytes(i) for i in ids[:position])
        assert offset == 100 + len(before.decode("utf-8", "ignore"))
        whole = BYTES.token_bytes(token_id).decode("utf-8", "ignore")
        assert text[offset - 100 :].startswith(whole)


def test_offsets_count_hidden_and_held_text() -> None:
    stream = TextStream(BYTES, stops=["lloX"])
    delta = stream.feed([*ids_of("hello"), END, *ids_of("!")])
    assert delta.text_offsets == (0, 5, 5), "a hidden token has no text, held text counts"
    assert delta.text == "hello!"


def test_the_token_that_ends_a_text_counts_without_text() -> None:
    stream = TextStream(BYTES, skip_special_tokens=False)
    delta = stream.feed([*ids_of("hello"), END], hide_last=True)
    assert (delta.text, delta.num_tokens, delta.text_offsets) == ("hello", 2, (0, 5))
    shown = TextStream(BYTES, skip_special_tokens=False).feed([*ids_of("hello"), END])
    assert shown.text == "hello<|end|>"


def test_finish_gives_what_was_held() -> None:
    stream = TextStream(BYTES, stops=["world!"])
    assert stream.feed(ids_of("hello world")).text == "hello "
    assert stream.finish() == TextDelta("world")
    half = TextStream(BYTES)
    assert half.feed([BYTES.token_to_id("Ã") or 0]).text == ""
    assert half.finish().text == "\ufffd"


def test_a_stop_string_can_be_part_of_the_output() -> None:
    stream = TextStream(BYTES, stops=["."], include_stop=True)
    assert stream.feed(ids_of("hello. world")).text == "hello."


def test_streams_continue_prompts() -> None:
    hello = PIECES.token_to_id("▁hello") or 0
    assert TextStream(PIECES, prompt_ids=[1, hello]).feed([hello]).text == " hello"
    assert TextStream(PIECES, prompt_ids=[1]).feed([hello]).text == "hello"


def test_what_an_engine_gives_is_taken_with_its_last_word() -> None:
    """The reason decides what becomes of the last id and of the text still held."""
    ids = [*ids_of("hello wor"), END]

    def take(reason: str | None, **options: bool) -> TextDelta:
        stream = TextStream(BYTES, stops=["world"], skip_special_tokens=False, **options)
        first = stream.take(ids[:-1], None)
        assert first.text == "hello "
        last = stream.take(ids[-1:], reason)
        assert last.num_tokens == 1
        return last

    assert take(None).text == "wor<|end|>"
    assert take("length").text == "wor<|end|>"
    assert take("stop").text == "wor"
    assert take("stop", include_stop=True).text == "wor<|end|>"
    complete = TextStream(BYTES, skip_special_tokens=False)
    taken = complete.take(ids, "stop", ends_with_text=True)
    assert (taken.text, taken.num_tokens) == ("hello wor<|end|>", len(ids))


def test_a_stop_string_that_ends_with_the_last_word_is_told() -> None:
    stream = TextStream(BYTES, stops=["lo"])
    delta = stream.take(ids_of("hello you"), "length")
    assert (delta.text, delta.stop) == ("hel", "lo")
    assert stream.take(ids_of("more"), "length") == TextDelta("")
    half = TextStream(BYTES, stops=["\ufffd"])
    delta = half.take([BYTES.token_to_id("Ã") or 0], "length")
    assert (delta.text, delta.stop) == ("", "\ufffd"), "only the end shows what the byte is"


def test_stop_strings_are_not_searched_within_min_tokens() -> None:
    ids = ids_of("aXbXcX")
    assert len(ids) == 6, "a token for each character"

    def run(min_tokens: int, stops: list[str]) -> tuple[str, str | None, int]:
        stream = TextStream(BYTES, stops=stops, min_tokens=min_tokens)
        delta = stream.take(ids, "length")
        return delta.text, delta.stop, delta.num_tokens

    assert run(1, ["X"]) == ("a", "X", 2)
    assert run(2, ["X"]) == ("aXb", "X", 4), "the last of the first two may not complete it"
    assert run(5, ["X"]) == ("aXbXc", "X", 6)
    assert run(6, ["X"]) == ("aXbXcX", None, 6)
    assert run(2, ["aXb"]) == ("", "aXb", 3), "a later token completes what an earlier one began"
    assert run(3, ["X", "aXbXZ"]) == ("aXb", "X", 4)
    assert run(4, ["X", "aXbXZ"]) == ("aXbXc", "X", 6), "held text is not searched again"


def test_the_end_of_a_text_within_min_tokens_is_not_searched() -> None:
    half = [BYTES.token_to_id("Ã") or 0]
    stream = TextStream(BYTES, stops=["\ufffd"], min_tokens=1)
    assert stream.take(half, "length") == TextDelta("\ufffd", 1, None, (0,))


@pytest.mark.long
@settings(max_examples=300)
@given(
    text=st.text(alphabet="abé", max_size=14),
    stops=st.lists(st.text(alphabet="abé", min_size=1, max_size=4), min_size=1, max_size=3),
    min_tokens=st.integers(0, 8),
    cuts=st.lists(st.integers(0, 20), max_size=5),
)
def test_every_cut_finds_the_first_stop_string_that_ends_after_min_tokens(
    text: str, stops: list[str], min_tokens: int, cuts: list[int]
) -> None:
    ids = ids_of(text)
    settled = [BYTES.decode(ids[:n]).rstrip("\ufffd") for n in range(len(ids) + 1)]
    expected, counted, told = text, len(ids), None
    for num in range(min_tokens + 1, len(ids) + 1):
        ends = range(len(settled[num - 1]) + 1, len(settled[num]) + 1)
        matches = [(end, stop) for end in ends for stop in stops if text[:end].endswith(stop)]
        if matches:
            end, told = min(matches, key=lambda match: (match[0], -len(match[1])))
            expected, counted = text[: end - len(told)], num
            break
    bounds = [0, *sorted(cuts), max(len(ids), *cuts, 0)]
    stream = TextStream(BYTES, stops=stops, min_tokens=min_tokens)
    deltas = [stream.feed(ids[first:end]) for first, end in pairwise(bounds)]
    deltas.append(stream.finish())
    assert "".join(delta.text for delta in deltas) == expected
    assert sum(delta.num_tokens for delta in deltas) == counted
    assert next((delta.stop for delta in deltas if delta.stop), None) == told


def test_an_id_after_a_broken_character_begins_behind_it() -> None:
    first, *others = ids_of("你")
    half = [*ids_of("a"), first]
    assert TextStream(BYTES).feed([*half, *ids_of("bc")]).text_offsets == (0, 1, 2, 3)
    assert TextStream(BYTES).feed([*half, *others, *ids_of("b")]).text_offsets == (0, 1, 1, 1, 2)
    again = TextStream(BYTES).feed([*half, *half[1:], *others])
    assert (again.text, again.text_offsets) == ("a\ufffd你", (0, 1, 2, 2, 2))
