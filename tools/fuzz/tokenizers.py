"""Fuzzes tokenizers with hostile texts: `python -m tools.fuzz.tokenizers --seed 1 --seconds 600`.

Texts of many kinds of characters, long runs of one, lone surrogates and pieces of control tokens go
into a vocabulary of every known pre-tokenizer, SentencePiece's and Gemma's kinds, and the real ones
of HEADRACE_ASSETS where that is set (with `--memory-mib 4096`). For each text: encoding raises
nothing; decoding gives the text back; the streaming detokenizer gives what decoding does, at any
cut; cutting the text into segments changes nothing; segments that forbid control tokens make none;
`fewest_tokens` is a lower bound. One input in a hundred has a million characters, which may take
`--limit-s 60`.
"""

from __future__ import annotations

import os
import random
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.text import Detokenizer, Tokenizer, load_tokenizer
from headrace.weights.tokenizer.data import TokenizerData
from headrace.weights.tokenizer.pretokenizers import PRETOKENIZERS, name_of
from tools.fuzz.harness import Target, main

LONG_CHARS = 1_000_000
LONG_SHARE = 0.01
# For a text of a million characters the library takes more than 500 MiB.
MEMORY_MIB = 2048
# Beyond, only encoding and decoding are looked at: the rest is as slow and finds the same.
MAX_STREAMED_TOKENS = 4000

_ALPHABETS: tuple[Callable[[random.Random], str], ...] = (
    lambda rng: chr(rng.randrange(0x20, 0x7F)),
    lambda rng: rng.choice(" \t\n\r\x0b\x0c\u0085\u00a0\u2003\u2028\u3000"),
    lambda rng: rng.choice("0123456789٣४½Ⅷ²"),
    lambda rng: chr(rng.randrange(0x300, 0x370)),
    lambda rng: chr(rng.randrange(0x4E00, 0x9FFF)),
    lambda rng: chr(rng.randrange(0x1F300, 0x1FAFF)),
    lambda rng: rng.choice("'’`\"<>|[]{}\u2581\u200d\ufeff\u00ad\ufffd\x00\x7f"),
    lambda rng: chr(rng.choice((rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)))),
    lambda rng: chr(rng.randrange(0xD800, 0xE000)),
)


@dataclass(frozen=True)
class Subject:
    """What is not given back: nfc: text is composed; marks: U+2581 is a space."""

    tokenizer: Tokenizer
    nfc: bool = False
    marks: bool = False


def subjects() -> dict[str, Subject]:
    """Vocabularies by name: made ones, and real ones where the assets are."""
    from tests.text.vocabularies import byte_level, sentencepiece, text_bpe

    made = {
        name: Subject(_built(byte_level(pre=name)), nfc=rule.nfc)
        for name, rule in PRETOKENIZERS.items()
        if name == name_of(rule.patterns, rule.ignore_merges)
    }
    made["sentencepiece"] = Subject(_built(sentencepiece()), marks=True)
    made["unprefixed"] = Subject(_built(sentencepiece(add_space_prefix=False)), marks=True)
    made["gemma4"] = Subject(_built(text_bpe()), marks=True)
    assets = os.environ.get("HEADRACE_ASSETS")
    return made if assets is None else made | _real(Path(assets))


def _real(assets: Path) -> dict[str, Subject]:
    from tests.text.assets import mistral, vocabulary

    names = ("gpt-2", "llama-bpe", "qwen2", "mpt", "deepseek-coder", "gpt-4o")
    real = {
        f"real {name}": Subject(vocabulary(assets, name), nfc=name == "qwen2") for name in names
    }
    real["real llama-spm"] = Subject(vocabulary(assets, "llama-spm"), marks=True)
    real["real mistral"] = Subject(mistral(assets, 3, True), marks=True)
    return real


def _built(arrays: dict[str, Any]) -> Tokenizer:
    return load_tokenizer(TokenizerData("gguf", gguf=arrays))


def any_text(rng: random.Random, control: Sequence[str]) -> str:
    """A text of several kinds of characters, runs of one, and (pieces of) control tokens."""
    if rng.random() < LONG_SHARE:
        unit = "".join(rng.choice(_ALPHABETS)(rng) for _ in range(rng.randint(1, 3)))
        return unit * (LONG_CHARS // len(unit)) + rng.choice(("", "a", "\n", "<"))
    parts = []
    for _ in range(rng.randint(0, 12)):
        kind, alphabet = rng.random(), rng.choice(_ALPHABETS)
        if kind < 0.2 and control:
            token = rng.choice(control)
            parts.append(token[: rng.randint(1, len(token))] if kind < 0.1 else token)
        elif kind < 0.35:
            parts.append(alphabet(rng) * rng.randint(1, 300))
        else:
            parts.append("".join(alphabet(rng) for _ in range(rng.randint(1, 20))))
    return "".join(parts)


def make_target() -> Target:
    """Inputs are a seed for cuts and the name of a vocabulary, one line each, and a text."""
    known = subjects()
    names = sorted(known)

    def mutate(seeds: Sequence[bytes], rng: random.Random) -> bytes:
        name = rng.choice(names)
        text = any_text(rng, known[name].tokenizer.control_tokens)
        return f"{rng.getrandbits(32)}\n{name}\n{text}".encode("utf-8", "surrogatepass")

    def attempt(data: bytes) -> str:
        number, _, rest = data.decode("utf-8", "surrogatepass").partition("\n")
        name, _, text = rest.partition("\n")
        subject = known.get(name)
        if subject is None:
            return "no vocabulary"
        try:
            check(subject, text, random.Random(number))
        except Exception:
            raise
        except BaseException as error:
            # The tokenizers library panics with a BaseException of its own.
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            raise RuntimeError(f"{name}: {type(error).__name__}: {error}") from error
        return "long" if len(text) > LONG_CHARS // 2 else "right"

    return Target(seeds=(), mutate=mutate, attempt=attempt)


def check(subject: Subject, text: str, rng: random.Random) -> None:
    """Raise AssertionError naming what does not hold for this text."""
    tokenizer = subject.tokenizer
    whole = _meant(text)
    ids = tokenizer.encode(text, add_special_tokens=False)
    _check_round_trip(subject, whole, ids)
    fewest = tokenizer.fewest_tokens(text)
    assert fewest <= len(ids), f"fewest_tokens {fewest} of {len(ids)}"
    plain = tokenizer.encode_segments([(text, False)])
    unknown = tokenizer.named_tokens.get("unk_token")
    made = {tokenizer.token_text(token) for token in set(plain) if tokenizer.is_special(token)}
    assert made <= {unknown}, f"forbidden control tokens {made}"
    if len(ids) <= MAX_STREAMED_TOKENS:
        cuts = sorted(rng.randint(0, len(whole)) for _ in range(3))
        spans = zip([0, *cuts], [*cuts, len(whole)], strict=True)
        segments = [(whole[start:end], True) for start, end in spans]
        assert tokenizer.encode_segments(segments) == ids, f"other ids when cut at {cuts}"
        _check_streams(tokenizer, ids, rng)
        strange = [rng.randrange(-2, 40_000) for _ in range(50)]
        _check_streams(tokenizer, strange, rng)


def _meant(text: str) -> str:
    """The text as it is encoded: a lone surrogate is U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _check_round_trip(subject: Subject, whole: str, ids: list[int]) -> None:
    tokenizer = subject.tokenizer
    decoded = tokenizer.decode(ids, skip_special_tokens=False)
    if subject.marks:
        whole = whole.replace("\u2581", " ")
        if tokenizer.strips_first_space and any(map(tokenizer.is_special, ids)):
            # A space is put before the text behind a control token too, and stays.
            whole, decoded = whole.replace(" ", ""), decoded.replace(" ", "")
    if subject.nfc:
        # Text between control tokens is composed piece by piece.
        whole, decoded = (unicodedata.normalize("NFC", side) for side in (whole, decoded))
    assert decoded == whole, f"decoded to {decoded[:300]!r}"


def _check_streams(tokenizer: Tokenizer, ids: list[int], rng: random.Random) -> None:
    for skip in (True, False):
        whole = tokenizer.decode(ids, skip_special_tokens=skip)
        stream = Detokenizer(tokenizer, skip_special_tokens=skip)
        streamed, at = "", 0
        while at < len(ids):
            step = rng.randint(0, 3)
            streamed += stream.feed(ids[at : at + step])
            at += step
        streamed += stream.flush()
        assert streamed == whole, f"streamed {streamed[:300]!r}"


if __name__ == "__main__":
    main(make_target, __doc__, memory_mib=MEMORY_MIB)
