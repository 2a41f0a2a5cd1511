"""Vocabularies of GGUF files that are damaged, or made to stall their reader, stop the load."""

from __future__ import annotations

import math
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.errors import CheckpointError, HeadraceError
from headrace.text.gguf_vocabulary import derive_merges
from headrace.weights.tokenizer.bpe_scores import scores_of_merges
from headrace.weights.tokenizer.piece_cuts import (
    MAX_PIECE_CHARS,
    MAX_TOTAL_CHARS,
    check_pieces,
    cuts_of,
)
from headrace.weights.tokenizer.sentencepiece_model import sentencepiece_entries
from tests.text.vocabularies import (
    BYTE,
    CONTROL,
    NORMAL,
    UNUSED,
    USER_DEFINED,
    byte_level,
    from_gguf,
    sentencepiece,
    text_bpe,
)
from tests.weights.test_sentencepiece_model import PIECES, model, written

MILLION = 1_000_000
# CPU seconds: far above what the load takes (0.01), far below what the square of a million does.
SOON_S = 0.4


def with_token(arrays: dict[str, Any], token: str, kind: int) -> dict[str, Any]:
    """The same arrays with one token more."""
    more = {"tokens": [*arrays["tokens"], token], "token_type": [*arrays["token_type"], kind]}
    if "scores" in arrays:
        more["scores"] = [*arrays["scores"], 0.0]
    return arrays | more


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_scores_are_finite(score: float) -> None:
    arrays = sentencepiece()
    at = arrays["tokens"].index("hello")
    scores = np.array(arrays["scores"], np.float32)
    scores[at] = score
    with pytest.raises(CheckpointError, match=rf"scores is {score} for token {at}, 'hello'; a fin"):
        from_gguf(arrays | {"scores": scores})
    # Nothing is merged into a byte or a control token, so theirs are not looked at.
    scores[at], scores[1] = arrays["scores"][at], score
    text = "hello ab"
    expected = from_gguf(arrays).encode(text, add_special_tokens=True)
    damaged = from_gguf(arrays | {"scores": scores})
    assert damaged.encode(text, add_special_tokens=True) == expected


@pytest.mark.parametrize("kind", [99, 0, -1, 7])
@pytest.mark.parametrize("made", [byte_level, sentencepiece, text_bpe])
def test_types_are_known(made: Any, kind: int) -> None:
    arrays = made()
    kinds = np.array(arrays["token_type"], np.int32)
    kinds[7] = kind
    said = f"token_type is {kind} for token 7; known types are 1 to 6"
    with pytest.raises(CheckpointError, match=said):
        from_gguf(arrays | {"token_type": kinds})


@pytest.mark.parametrize("made", [byte_level, sentencepiece, text_bpe])
def test_every_token_is_there_once(made: Any) -> None:
    arrays = made()
    first, last = arrays["tokens"].index("a"), len(arrays["tokens"])
    for kind in (NORMAL, CONTROL, UNUSED):
        with pytest.raises(CheckpointError, match=f"{first} and {last} are the same token, 'a'"):
            from_gguf(with_token(arrays, "a", kind))
    with pytest.raises(CheckpointError, match="0 and 1 are the same token, 'same'"):
        from_gguf(arrays | {"tokens": ["same"] * last})


@pytest.mark.parametrize("made", [byte_level, sentencepiece])
def test_empty_tokens_stand_for_nothing(made: Any) -> None:
    """Published files have some; a vocabulary of nothing else is damaged."""
    arrays = made()
    holed = with_token(with_token(arrays, "", NORMAL), "", CONTROL)
    text = "hello<|end|> a</s>b"
    ids = from_gguf(holed).encode(text, add_special_tokens=True)
    assert ids == from_gguf(arrays).encode(text, add_special_tokens=True)
    assert from_gguf(holed).token_bytes(len(arrays["tokens"])) == b""
    with pytest.raises(CheckpointError, match=r"none of the \d+ tokens is one that text can be"):
        from_gguf(arrays | {"tokens": [""] * len(arrays["tokens"])})


@pytest.mark.parametrize("kind", [CONTROL, UNUSED])
def test_a_vocabulary_without_a_usable_token_is_damaged(kind: int) -> None:
    arrays = byte_level()
    with pytest.raises(CheckpointError, match="none of the"):
        from_gguf(arrays | {"token_type": [kind] * len(arrays["tokens"])})


def test_a_token_of_a_million_characters_does_not_stall_the_load() -> None:
    begun_s = time.process_time()
    with pytest.raises(CheckpointError, match=f"of 1000000 .*at most {MAX_PIECE_CHARS} are"):
        from_gguf(with_token(sentencepiece(), "ab" * (MILLION // 2), NORMAL))
    for made in (byte_level, sentencepiece, text_bpe):
        for kind in (CONTROL, USER_DEFINED):
            with pytest.raises(CheckpointError, match=f"1000000 .*at most {MAX_PIECE_CHARS}"):
                from_gguf(with_token(made(), "<" * MILLION, kind))
        # One that no merge makes and no text is searched for is only stored.
        tokenizer = from_gguf(with_token(made(), "<" * MILLION, UNUSED))
        assert tokenizer.decode(tokenizer.encode("hello", add_special_tokens=False)) == "hello"
    assert time.process_time() - begun_s < SOON_S


def test_a_long_token_of_a_byte_level_vocabulary_is_taken() -> None:
    """Its merges are stated, so nothing is derived from it."""
    tokenizer = from_gguf(with_token(byte_level(), "x" * MILLION, NORMAL))
    assert tokenizer.encode("hello", add_special_tokens=False) == [tokenizer.token_to_id("hello")]


def test_pieces_together_are_bounded() -> None:
    within = [f"{index:04d}".ljust(MAX_PIECE_CHARS, "x") for index in range(8)]
    check_pieces(within)
    beyond = [f"{index:08d}" for index in range(8)]
    assert MAX_TOTAL_CHARS // MAX_PIECE_CHARS == 2**13
    with pytest.raises(CheckpointError, match=f"together; at most {MAX_TOTAL_CHARS}"):
        check_pieces([*beyond, *(str(index).zfill(1024) for index in range(2**13))])
    assert cuts_of("abcd", {"a", "bcd", "ab", "cd", "abc"}) == [2, 1]


def test_other_readers_of_pieces_are_bounded_as_well(tmp_path: Path) -> None:
    """A conversion from tokenizer.json, and a folder's tokenizer.model."""
    begun_s = time.process_time()
    with pytest.raises(CheckpointError, match="token of 1000000 characters"):
        scores_of_merges(["a", "a" * MILLION], [NORMAL, NORMAL], [])
    with pytest.raises(CheckpointError, match="token of 1000000 characters"):
        derive_merges(["a", "a" * MILLION], [0.0, 0.0], [NORMAL, NORMAL])
    long = [*PIECES, ("h" * MILLION, 0.0, NORMAL)]
    with pytest.raises(CheckpointError, match="token of 1000000 characters"):
        from_gguf(sentencepiece_entries(written(tmp_path, model(long)), {}))
    not_a_number = [*PIECES[:-2], ("hh", math.nan, NORMAL)]
    with pytest.raises(CheckpointError, match="scores is nan"):
        from_gguf(sentencepiece_entries(written(tmp_path, model(not_a_number)), {}))
    assert time.process_time() - begun_s < SOON_S


def test_bytes_alone_are_a_vocabulary() -> None:
    tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    arrays = {"model": "llama", "tokens": tokens, "scores": [0.0] * 256, "token_type": [BYTE] * 256}
    tokenizer = from_gguf(arrays | {"add_space_prefix": False, "add_bos_token": False})
    assert tokenizer.encode("hé", add_special_tokens=True) == [*"hé".encode()]


ODD: tuple[Any, ...] = ("", "a", "ab", "▁", "<", "<|end|>", "</s>", "\0", "é", " ", "x" * 1200)


def test_any_damage_gives_our_errors_or_a_tokenizer() -> None:
    """Tokens, types, scores, merges and ids changed at random."""
    source = random.Random(3)
    built = 0
    for _ in range(400):
        arrays = source.choice([byte_level, sentencepiece, text_bpe])()
        count = len(arrays["tokens"])
        for key in source.sample(sorted(arrays), source.randint(1, 3)):
            if key in ("tokens", "token_type", "scores"):
                choices = {"tokens": ODD, "token_type": range(8), "scores": (math.nan, -0.0, 3e38)}
                arrays[key] = list(arrays[key])
                for _ in range(source.choice([1, 1, 3, 40])):
                    arrays[key][source.randrange(count)] = source.choice(choices[key])
                arrays[key] = arrays[key][: source.choice([count] * 9 + [3])]
            elif key == "merges":
                pairs = [" ".join(source.choices(ODD, k=2)) for _ in range(source.randint(1, 9))]
                arrays[key] = [*arrays[key], *pairs, *source.sample(ODD, 3)]
            elif key.endswith("_id"):
                arrays[key] = source.choice([0, 5, -1, count, 2**32 - 1])
        try:
            tokenizer = from_gguf(arrays)
        except HeadraceError:
            continue
        built += 1
        for text in ("hello <|end|> a</s>b é", "x" * 1200):
            ids = tokenizer.encode(text, add_special_tokens=True)
            tokenizer.decode(ids)
            plain = tokenizer.encode_segments([("h", True), (text, False)])
            kinds = list(arrays["token_type"])
            assert all(kinds[index] != CONTROL for index in plain)
    assert built > 50
