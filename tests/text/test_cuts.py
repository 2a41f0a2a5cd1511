"""Long texts are encoded in slices: the ids are those of the whole, for every rule of splitting."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from headrace.text import Tokenizer, cuts
from headrace.text import tokenizer as tokenizer_module
from headrace.text.byte_alphabet import BYTE_OF_CHAR, SPACE_MARK
from headrace.text.cuts import (
    LINE_BREAK_PATTERNS,
    TextBound,
    TextTooLongError,
    cuts_of,
    known_patterns,
)
from headrace.text.vocabulary import Vocabulary
from tests.text.test_pretokenizers import pieces
from tests.text.vocabularies import byte_level, from_gguf, real, sentencepiece, text_bpe

SPACE_CUT = re.compile(r" (?=\S)(?<=\S )")
CUT = re.compile(SPACE_CUT.pattern + r"|\n(?=[^\W\d_])(?<=\S\n)")
ALPHABET = "    \n\n\t\r\u00a0\u3000aZsté漢かไ한ж12٣½'.,!/(-_\u0301\U0001f600"
SPLICED = ("'s", "  ", " a", "b ", "\n\n", "\r\n", "123", "a\nb", "x y", "。\n", "IMGIMGAZ")


def texts(seed: str, count: int, most_chars: int) -> list[str]:
    """Texts of many spaces and line ends, so that there are cuts."""
    source = random.Random(seed)
    made = []
    for _ in range(count):
        parts = [
            source.choice(SPLICED) if source.random() < 0.2 else source.choice(ALPHABET)
            for _ in range(source.randint(2, most_chars))
        ]
        made.append("".join(parts))
    return made


def boundaries(patterns: tuple[str, ...], text: str) -> set[int]:
    at, found = 0, set()
    for piece in pieces(patterns, text):
        at += len(piece)
        found.add(at)
    return found


@pytest.mark.parametrize("pattern", sorted(known_patterns()))
def test_a_known_pattern_splits_both_sides_as_it_splits_the_whole(pattern: str) -> None:
    allowed = SPACE_CUT if pattern.startswith(LINE_BREAK_PATTERNS) else CUT
    num_cuts = 0
    for text in texts(pattern, 120, 14):
        whole = boundaries((pattern,), text)
        for match in allowed.finditer(text):
            cut = match.start() if match.group() == " " else match.end()
            left, right = boundaries((pattern,), text[:cut]), boundaries((pattern,), text[cut:])
            assert whole | {cut} == left | {cut} | {cut + at for at in right}, (text, cut)
            num_cuts += 1
    assert num_cuts > 50


@pytest.fixture
def tiny_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts are cut wherever that is allowed, long or not."""
    monkeypatch.setattr(cuts, "WHOLE_CHARS", 4)
    monkeypatch.setattr(cuts, "SLICE_CHARS", 1)
    monkeypatch.setattr(cuts, "_SEARCH_CHARS", 3)


def encodings(tokenizer: Tokenizer) -> dict[str, Callable[[str], list[int]]]:
    """Every way a text becomes ids; the last one has control tokens written by a user in it."""
    return {
        "parsed": lambda t: tokenizer.encode(t, add_special_tokens=True),
        "not parsed": lambda t: tokenizer.encode(t, add_special_tokens=False, parse_special=False),
        "segments": lambda t: tokenizer.encode_segments([(t, False), ("b", True)]),
        "guarded segments": lambda t: tokenizer.encode_segments(
            [("b", True), (t, False), ("</s><|end|>", False), (t, True)]
        ),
    }


def _compare(
    tokenizer: Tokenizer, samples: list[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[int, int]:
    """(slices, texts) of samples, whose ids are the same in both ways."""
    num_slices = 0
    for text in samples:
        num_slices += len(list(tokenizer._cuts.slices(text)))
        for way, encode in encodings(tokenizer).items():
            monkeypatch.setattr(tokenizer_module, "WHOLE_CHARS", 10**9)
            whole = encode(text)
            monkeypatch.setattr(tokenizer_module, "WHOLE_CHARS", 4)
            assert encode(text) == whole, (way, text)
    return num_slices, len(samples)


VOCABULARIES: dict[str, dict[str, Any]] = {
    "gpt-2": byte_level(),
    "llama-bpe": byte_level(pre="llama-bpe"),
    "qwen2": byte_level(pre="qwen2"),
    "gpt-4o": byte_level(pre="gpt-4o"),
    "deepseek-v3": byte_level(pre="deepseek-v3"),
    "sentencepiece": sentencepiece(),
    "without a first space": sentencepiece(add_space_prefix=False),
    "not legacy": sentencepiece(legacy=False),
    "text": text_bpe(),
}
WORDS = (
    "hello", "hello hello", " world", "<s>", "</s>", "<|end|>", "<|end|>>", "<tool>", "<think>",
    "<|turn>", "\n", "\n\n", " ", "  ", "▁", "▁▁", "aa", "ab", "a", "1", "é", "漢。\n", ". a",
)  # fmt: skip


@pytest.mark.parametrize("name", VOCABULARIES)
@pytest.mark.usefixtures("tiny_slices")
def test_ids_of_slices_are_those_of_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = random.Random(name)
    samples = texts(name, 40, 30)
    samples += [
        "".join(source.choice(WORDS) for _ in range(source.randint(2, 20))) for _ in range(60)
    ]
    samples += [" ".join(["hello"] * 20), "a\nhello\n" * 9, "\ud800 a \udc00 b", "a " * 20]
    num_slices, num_texts = _compare(from_gguf(VOCABULARIES[name]), samples, monkeypatch)
    assert num_slices > 2 * num_texts


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["qwen2", "llama-bpe", "llama-spm", "gpt-neox", "deepseek-coder", "baichuan"]
)
@pytest.mark.usefixtures("tiny_slices")
def test_real_vocabularies_have_cuts_and_keep_their_ids(
    shared_assets: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = real(shared_assets, name)
    source = random.Random(name)
    size = tokenizer._vocabulary.backend.get_vocab_size()
    samples = texts(name, 150, 60)
    samples += [
        "".join(tokenizer.token_text(source.randrange(size)) for _ in range(60)) for _ in range(100)
    ]
    num_slices, num_texts = _compare(tokenizer, samples, monkeypatch)
    assert num_slices > 3 * num_texts


def test_a_long_text_is_never_encoded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = from_gguf(byte_level())
    encoded: list[int] = []
    encode = tokenizer._ids_at_once

    def spy(backend: Backend, text: str, *place: int) -> list[int]:
        encoded.append(len(text))
        return encode(backend, text, *place)

    monkeypatch.setattr(tokenizer, "_ids_at_once", spy)
    ids = tokenizer.encode("hello world " * 40_000, add_special_tokens=False)
    assert ids == tokenizer.encode("hello world ", add_special_tokens=False) * 40_000
    assert len(encoded) >= 5
    assert max(encoded) <= cuts.WHOLE_CHARS


def test_a_text_of_too_many_tokens_is_given_up_early() -> None:
    tokenizer = from_gguf(byte_level())
    text = "hello world " * 100_000
    bound = TextBound(10_000, 10**9)
    ways: list[Callable[[], list[int]]] = [
        lambda: tokenizer.encode(text, add_special_tokens=False, bound=bound),
        lambda: tokenizer.encode_segments([(text, False)], bound=bound),
        lambda: tokenizer.encode_segments([("<|end|>", False), (text, False)], bound=bound),
    ]
    for encode in ways:
        with pytest.raises(TextTooLongError) as raised:
            encode()
        assert 10_000 < raised.value.least_tokens < 50_000
    short = "hello " * 1000
    assert tokenizer.encode(short, add_special_tokens=False, bound=TextBound(9, 9))


@pytest.mark.parametrize("char", ["y", " ", "漢", "\n"])
def test_a_stretch_without_a_cut_has_a_bound(char: str) -> None:
    tokenizer = from_gguf(byte_level())
    text = "a b " * 20_000 + char * 270_000
    num_bytes = 270_000 * len(char.encode())
    with pytest.raises(TextTooLongError, match=f"{num_bytes - 1} bytes in a row"):
        tokenizer.encode(text, add_special_tokens=False, bound=TextBound(10**9, num_bytes - 1))
    with pytest.raises(TextTooLongError, match="in a row"):
        tokenizer.encode(text + text, add_special_tokens=False, bound=TextBound(10**9, 2**18))


def test_a_stretch_within_its_bound_is_encoded() -> None:
    text = "a b " * 20_000 + "y" * 270_000 + " c" * 20_000
    bound = TextBound(10**9, 270_000 + cuts.SLICE_CHARS)
    ids = from_gguf(byte_level()).encode(text, add_special_tokens=False, bound=bound)
    assert len(ids) == len(text)


def _vocabulary(backend: Backend, spelling: str = "bytes") -> Vocabulary:
    return Vocabulary(
        backend=backend, spelling=spelling, literal={},
        special_ids=frozenset(), prefix_ids=(), suffix_ids=(), strips_first_space=False,
        bos_token_id=None, eos_token_ids=(),
    )  # fmt: skip


def _backend(
    *, more: tuple[str, ...] = (), normalizer: Any = None, splits: Any = (), **options: Any
) -> Backend:
    tokens = [*BYTE_OF_CHAR, *more]
    merges = [(piece[0], piece[1]) for piece in more]
    backend = Backend(
        models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges, **options)
    )
    if normalizer is not None:
        backend.normalizer = normalizer
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    backend.pre_tokenizer = pre_tokenizers.Sequence([*splits, to_bytes])
    return backend


def _with_added(text: str, **changes: bool) -> Backend:
    backend = _backend()
    backend.add_tokens([AddedToken(text, **changes)])
    return backend


TEXT = "word word! word\nword 漢 word"
ALL = ["word", " word!", " word\n", "word", " 漢", " word"]


@pytest.mark.parametrize(
    ("backend", "expected"),
    [
        (_backend(), ALL),
        (_backend(normalizer=normalizers.NFC()), ALL),
        (_backend(splits=[pre_tokenizers.Digits(individual_digits=True)]), ALL),
        (_backend(more=("!Ġ",)), ["word", " word! word\n", "word", " 漢", " word"]),
        (_backend(more=("dĠ",)), ["word word!", " word\n", "word 漢", " word"]),
        (_backend(more=("©Ġ",)), ["word", " word!", " word\n", "word", " 漢 word"]),
        (
            _backend(more=("!Ġ",), normalizer=normalizers.NFC()),
            ["word", " word! word\n", "word", " 漢 word"],
        ),
        (_backend(more=("Ċw",)), ["word", " word!", " word\nword", " 漢", " word"]),
        (_backend(more=("ĊĊ", "ĠĠ", "!Ċ", "Ġw")), ALL),
        (_with_added("! w"), ["word", " word! word\n", "word", " 漢", " word"]),
        (_with_added("d\nw"), ["word", " word!", " word\nword", " 漢", " word"]),
        (_with_added("<!", rstrip=True), ["word", " word! word\n", "word", " 漢", " word"]),
        (_with_added("<x>", lstrip=True), ALL),
        (_with_added("x", lstrip=True), ["word", " word!", " word\nword", " 漢", " word"]),
        (_with_added(" wo", single_word=True), ["word word! word\n", "word 漢 word"]),
        (_backend(normalizer=normalizers.NFKC()), [TEXT]),
        (_backend(normalizer=normalizers.Strip()), [TEXT]),
        (_backend(normalizer=normalizers.Replace(" w", "W")), [TEXT]),
        (_backend(splits=[pre_tokenizers.Split(Regex(r"\w+ \w+"), "isolated")]), [TEXT]),
        (_backend(splits=[pre_tokenizers.Split(Regex(r"\p{N}+"), "merged_with_next")]), [TEXT]),
        (_backend(splits=[pre_tokenizers.WhitespaceSplit()]), [TEXT]),
        (_backend(dropout=0.5), [TEXT]),
        (_backend(end_of_word_suffix="</w>"), [TEXT]),
    ],
)
@pytest.mark.usefixtures("tiny_slices")
def test_where_a_text_is_cut(backend: Backend, expected: list[str]) -> None:
    assert [piece for _, piece in cuts_of(_vocabulary(backend)).slices(TEXT)] == expected


def test_other_models_and_spellings_are_not_cut() -> None:
    unigram = Backend(models.Unigram([("a", 0.0), (SPACE_MARK, 0.0)], 0))
    for vocabulary in (_vocabulary(unigram, "sentencepiece"), _vocabulary(_backend(), "other")):
        assert cuts_of(vocabulary).pattern is None


@pytest.mark.usefixtures("tiny_slices")
def test_a_prefix_stands_for_the_space_of_a_cut() -> None:
    tokenizer = from_gguf(sentencepiece())
    text = "ab cd! ef <s> gh\nij "
    assert list(tokenizer._cuts.slices(text)) == [(0, "ab"), (3, "cd!"), (7, "ef <s> gh\nij ")]
