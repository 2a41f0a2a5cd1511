"""How few tokens a text can have at least: never more than it has, and nothing where unsure."""

from __future__ import annotations

import sys
import threading
import time
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from headrace.text import Tokenizer
from headrace.text.byte_alphabet import BYTE_OF_CHAR
from headrace.text.token_bound import NFC_SHRINKS_BYTES, most_token_bytes
from headrace.text.vocabulary import Vocabulary
from tests.text.vocabularies import byte_level, from_gguf, real, sentencepiece

TEXTS = [
    "", "a", "hello world hello", " " * 500, "<|end|>>" * 9, "é你好😀" * 9, "\ud800",
    "\ud83d\ude00", "e\u0301" * 50, "\u1fbe\u0308\u0301" * 50, "\ufb01\u212b\uac00",
    "\n\t \r\n" * 20,
]  # fmt: skip


@pytest.mark.parametrize("arrays", [byte_level(), byte_level(pre="qwen2"), sentencepiece()])
def test_no_text_has_fewer(arrays: dict[str, Any]) -> None:
    tokenizer = from_gguf(arrays)
    for text in TEXTS:
        for parse_special in (True, False):
            ids = tokenizer.encode(text, add_special_tokens=False, parse_special=parse_special)
            assert tokenizer.fewest_tokens(text) <= len(ids)
    assert tokenizer.fewest_tokens("x" * 100_000) >= 100_000 // 64


@pytest.mark.long
@pytest.mark.parametrize("name", ["qwen2", "llama-bpe", "llama-spm"])
def test_no_text_has_fewer_in_real_vocabularies(shared_assets: Path, name: str) -> None:
    tokenizer = real(shared_assets, name)
    backend = tokenizer._vocabulary.backend
    longest = max(backend.get_vocab(), key=len)
    for text in [*TEXTS, tokenizer.token_text(backend.token_to_id(longest) or 0) * 20]:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.fewest_tokens(text) <= len(ids)
    assert tokenizer.fewest_tokens("x" * 100_000) > 50


def test_the_bound_is_reached() -> None:
    """By the longest token of the vocabulary."""
    tokenizer = from_gguf(byte_level())
    assert tokenizer.fewest_tokens("<|start|>" * 50) == 50
    assert len(tokenizer.encode("<|start|>" * 50, add_special_tokens=False)) == 50


def _vocabulary(backend: Backend, spelling: str = "bytes") -> Vocabulary:
    return Vocabulary(
        backend=backend, spelling=spelling, literal={},
        special_ids=frozenset(), prefix_ids=(), suffix_ids=(), strips_first_space=False,
        bos_token_id=None, eos_token_ids=(),
    )  # fmt: skip


def _backend(model: Any = None, normalizer: Any = None, splits: Any = ()) -> Backend:
    vocab = {char: index for index, char in enumerate(BYTE_OF_CHAR)}
    backend = Backend(model or models.BPE(vocab=vocab, merges=[]))
    if normalizer is not None:
        backend.normalizer = normalizer
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([*splits, to_bytes])
    return backend


def _with_added(**changes: bool) -> Backend:
    backend = _backend()
    backend.add_tokens([AddedToken("<mask>", **changes)])
    return backend


@pytest.mark.parametrize(
    ("backend", "bound"),
    [
        (_backend(), 1),
        (_with_added(), 6),
        (_with_added(lstrip=True), 6),
        (_with_added(rstrip=True), 6),
        (_backend(normalizer=normalizers.NFC()), NFC_SHRINKS_BYTES),
        (_backend(normalizer=normalizers.Replace(" ", "__")), 1),
        (_backend(normalizer=normalizers.Replace("  ", "_")), None),
        (_backend(normalizer=normalizers.Replace(Regex(" +"), "_")), None),
        (_backend(normalizer=normalizers.NFKC()), None),
        (_backend(normalizer=normalizers.Strip()), None),
        (_backend(splits=[pre_tokenizers.Split(" ", "isolated")]), 1),
        (_backend(splits=[pre_tokenizers.Split(" ", "removed")]), None),
        (_backend(splits=[pre_tokenizers.WhitespaceSplit()]), None),
        (_backend(models.BPE(vocab={"a": 0, "b": 1}, merges=[])), None),
        (_backend(models.WordLevel(vocab={"a": 0, "u": 1}, unk_token="u")), None),
    ],
)
def test_where_there_is_a_bound(backend: Backend, bound: int | None) -> None:
    vocabulary = _vocabulary(backend)
    assert most_token_bytes(vocabulary) == bound
    fewest = Tokenizer(vocabulary).fewest_tokens("x" * 96)
    assert fewest == (-(-96 // bound) if bound else 0)


@pytest.mark.parametrize("flag", ["lstrip", "rstrip"])
def test_white_space_that_goes_with_added_tokens_does_not_count(flag: str) -> None:
    tokenizer = Tokenizer(_vocabulary(_with_added(**{flag: True})))
    spaces = "\n\x85\u3000" * 1000
    text = f"{spaces}<mask>{spaces}x"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.fewest_tokens(text) == 2 <= len(ids)
    assert tokenizer.fewest_tokens("\x1c" * 600) == 100, "a separator, but not white space"


def test_unknown_spellings_and_missing_bytes_have_none() -> None:
    assert most_token_bytes(_vocabulary(_backend(), "decoder WordPiece")) is None
    assert most_token_bytes(_vocabulary(_backend(), "sentencepiece")) is None
    assert most_token_bytes(from_gguf(sentencepiece())._vocabulary) is not None


@pytest.mark.long
def test_nfc_shrinks_no_text_by_more() -> None:
    """Every text that NFC makes of others is that of a sequence of decomposed characters.

    So it is enough to know how long each of those can be written, and that no character that
    decomposes into several is longer than they can be one by one.
    """
    longest: dict[str, int] = {}
    several: list[tuple[str, str]] = []
    whole: list[tuple[str, str]] = []
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        # Surrogates, and what is unassigned or private, decompose into nothing.
        if unicodedata.category(char)[0] == "C" and unicodedata.category(char) != "Cc":
            continue
        parts = unicodedata.normalize("NFD", char)
        if len(parts) == 1:
            longest[parts] = max(longest.get(parts, 0), len(char.encode()))
        else:
            several.append((char, parts))
        if unicodedata.is_normalized("NFC", char):
            whole.append((char, parts))
    for char, parts in several:
        assert len(char.encode()) <= sum(longest[part] for part in parts)
    ratios = [sum(longest[part] for part in parts) / len(char.encode()) for char, parts in whole]
    assert max(ratios) == 3.5
    assert max(ratios) <= NFC_SHRINKS_BYTES


def test_other_threads_run_while_a_large_text_is_encoded() -> None:
    tokenizer = from_gguf(byte_level())
    turns: list[float] = []
    done = threading.Event()

    def count() -> None:
        while not done.is_set():
            turns.append(time.monotonic())
            time.sleep(0.001)

    other = threading.Thread(target=count)
    other.start()
    begun_s = time.monotonic()
    tokenizer.encode("hello world " * 80_000, add_special_tokens=False)
    ended_s = time.monotonic()
    done.set()
    other.join()
    # With the interpreter's lock held, the last turn is before the first tenth.
    middle = (begun_s + ended_s) / 2
    early = [one for one in turns if begun_s < one < middle]
    assert len(early) > 5
