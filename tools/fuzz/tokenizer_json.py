"""Fuzzes tokenizer.json: `python -m tools.fuzz.tokenizer_json --seed 1 --seconds 600`.

An input is a tokenizer.json or the tokenizer_config.json beside one, its first byte saying which.
Files of five kinds are changed as values, given steps and vocabularies that are strange or hostile,
and some damaged as bytes. Making a tokenizer of it either works or raises CheckpointError or
UnsupportedModelError; with one that is made, each text becomes ids or is refused with a
RequestError, and the ids become a text; all in bounded time and memory.

What ends the process (memory that is refused aborts it) cannot be reported; the input stays in the
folder that is printed at the start.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from headrace.errors import CheckpointError, RequestError, UnsupportedModelError
from headrace.text import Tokenizer, load_tokenizer
from headrace.weights.tokenizer.data import TokenizerData
from tools.fuzz.harness import Target, main
from tools.fuzz.json_values import change, change_json
from tools.fuzz.mutations import Span, damage

MAX_ERROR_CHARACTERS = 4000
FILES = ("tokenizer.json", "tokenizer_config.json")
TEXTS = (
    "", "a", "hello world", " \n\t ", "1234567 x 12", "</s><s>ab</s>", "\u00e9e\u0301\ufb03\ufdfa",
    "\u4e2d\u6587 \U0001f600\u200d", "a" * 3000, " " * 3000 + "x", "\ud800a", "<0x41>\u2581\u2581",
    "``''", "\x00\x01", "aA" * 500,
)  # fmt: skip

_CONFIG = {
    "bos_token": "<s>", "eos_token": {"content": "</s>"}, "add_bos_token": True,
    "additional_special_tokens": ["<tool>"],
}  # fmt: skip
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
_STEPS: dict[str, tuple[dict[str, Any], ...]] = {
    "normalizer": (
        {"type": "NFC"}, {"type": "NFD"}, {"type": "NFKC"}, {"type": "NFKD"}, {"type": "Lowercase"},
        {"type": "Nmt"}, {"type": "StripAccents"}, {"type": "ByteLevel"},
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
         "strip_accents": None, "lowercase": True},
        {"type": "Prepend", "prepend": "\u2581"}, {"type": "Prepend", "prepend": "x" * 60},
        {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 50},
        {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "b"},
        {"type": "Replace", "pattern": {"Regex": ""}, "content": "xy"},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
        {"type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAABhAA=="},
        {"type": "Precompiled", "precompiled_charsmap": "CAAAAAAAAAD/////YWIA"},
    ),
    "pre_tokenizer": (
        _BYTE_LEVEL, {"type": "Whitespace"}, {"type": "WhitespaceSplit"}, {"type": "Punctuation"},
        {"type": "BertPreTokenizer"}, {"type": "UnicodeScripts"},
        {"type": "Digits", "individual_digits": True},
        {"type": "CharDelimiterSplit", "delimiter": " "},
        {"type": "FixedLength", "length": 5}, {"type": "FixedLength", "length": 0},
        {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
        {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False},
        {"type": "Split", "pattern": {"Regex": r"\s*[\r\n]+|\s+(?!\S)|\s+"},
         "behavior": "Isolated", "invert": False},
        {"type": "Split", "pattern": {"Regex": "(a*)*b"}, "behavior": "Removed", "invert": False},
        {"type": "Split", "pattern": {"Regex": "a*a*a*b"}, "behavior": "Removed", "invert": True},
        {"type": "Split", "pattern": {"Regex": "(?:(?:x{1000}){1000}){1000}"},
         "behavior": "Isolated", "invert": False},
        {"type": "Split", "pattern": {"Regex": "(((("}, "behavior": "Isolated", "invert": False},
        {"type": "Split", "pattern": {"String": ""}, "behavior": "Isolated", "invert": False},
        {"type": "Split", "pattern": {"String": "a"}, "behavior": "MergedWithNext",
         "invert": True},
    ),
    "post_processor": (
        _BYTE_LEVEL,
        {"type": "TemplateProcessing",
         "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                    {"Sequence": {"id": "A", "type_id": 0}}],
         "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
         "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        {"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}},
        {"type": "BertProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1]},
        {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 10**9],
         "trim_offsets": True, "add_prefix_space": True},
    ),
    "decoder": (
        _BYTE_LEVEL, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
        {"type": "WordPiece", "prefix": "##", "cleanup": True},
        {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
    ),
}  # fmt: skip
_SEQUENCES = {
    "normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "post_processor": "processors",
    "decoder": "decoders",
}  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 4, 255, 2**31, 2**32 - 1, 2**32, 2**63, 2**64, 10**30, 0.5, -0.0,
    1e308, "", "a", " ", "\u2581", "##", "x" * 5000, "\u00e9", "\x00", "<s>", "String", "Regex",
    "Sequence", "BPE", "WordPiece", "WordLevel", "Unigram", "(", "a*", r"\s+", [], {}, [0], [[]],
    ["a", "b"], [["a", "b"]], ["a b c"], [["a", -1.0]], {"a": 0}, {"a": -1}, {"": 0},
    {"a": 0, "b": 0}, {"String": ""}, {"Regex": "(a|a)*$"}, [{}] * 5, [[[[[[]]]]]],
)  # fmt: skip


def make_target(*, says_where: bool = False) -> Target:
    """The target, with a folder of its own that inputs are written to; says_where: prints it."""
    home = tempfile.TemporaryDirectory(prefix="fuzz-tokenizer-json-")
    folder = Path(home.name)
    if says_where:
        print(f"inputs are written to {folder}", flush=True)

    def attempt(data: bytes) -> str:
        # In a closure, so that the folder lives as long as the target.
        assert home.name
        which = FILES[data[0] % len(FILES)] if data else FILES[0]
        (folder / which).write_bytes(data[1:])
        config: Any = _CONFIG
        if which == FILES[1]:
            (folder / FILES[0]).write_text(json.dumps(_sentencepiece()), encoding="utf-8")
            try:
                config = json.loads(data[1:])
            except (ValueError, RecursionError):
                config = None
            if not isinstance(config, dict):
                return "CheckpointError"  # by whoever opens the folder; see `safetensors`
        return try_file(folder / FILES[0], config)

    return Target(seeds(), _mutate, attempt)


def try_file(path: Path, config: dict[str, Any]) -> str:
    """Make a tokenizer of `path`, use it in every way, and say how it ended."""
    data = TokenizerData("tokenizer.json", path, config=config)
    try:
        tokenizer = load_tokenizer(data)
        count = data.num_tokens
    except (CheckpointError, UnsupportedModelError) as error:
        _check_message(error)
        return type(error).__name__
    assert count is not None
    assert count > 0
    ended = [_try_text(tokenizer, text) for text in TEXTS]
    return "opened" if all(ended) else "opened, texts refused"


def _try_text(tokenizer: Tokenizer, text: str) -> bool:
    try:
        ids = tokenizer.encode(text, add_special_tokens=True)
        plain = tokenizer.encode(text, add_special_tokens=False, parse_special=False)
        tokenizer.encode_segments([("<s>", True), (text, False), ("</s>", True)])
    except RequestError as error:
        _check_message(error)
        return False
    fewest = tokenizer.fewest_tokens(text)
    assert fewest <= len(plain), f"fewest_tokens {fewest} of {len(plain)}"
    try:
        tokenizer.decode([*ids, *plain, -1, 2**40])
    except UnsupportedModelError as error:
        _check_message(error)
    return True


def _check_message(error: Exception) -> None:
    if len(str(error)) > MAX_ERROR_CHARACTERS:
        raise AssertionError(f"an error of {len(str(error))} characters") from error


def seeds() -> list[bytes]:
    """A file of each kind of model, and a tokenizer_config.json."""
    files = [_byte_level(), _sentencepiece(), _unigram(), _words("WordPiece"), _words("WordLevel")]
    inputs = [b"\0" + json.dumps(file).encode() for file in files]
    return [*inputs, b"\1" + json.dumps(_CONFIG).encode()]


def _file(model: dict[str, Any], first_id: int, **parts: Any) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": first_id + index, "content": text, "special": text != "<tool>", **flags}
        for index, text in enumerate(("<pad>", "<s>", "</s>", "<tool>"))
    ]
    empty = {"truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": None}
    rest = {"post_processor": None, "decoder": None}
    return {"version": "1.0", "added_tokens": added, **empty, **rest, **parts, "model": model}


def _byte_level() -> dict[str, Any]:
    from headrace.text.byte_alphabet import BYTE_OF_CHAR

    merges = ["h e", "l l", "he ll", "hell o", "\u0120 w"]
    tokens = [*BYTE_OF_CHAR, *(merge.replace(" ", "") for merge in merges)]
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    model = {"type": "BPE", "vocab": vocab, "merges": merges}
    return _file(
        model, len(vocab), normalizer={"type": "NFC"}, pre_tokenizer=_BYTE_LEVEL,
        decoder=_BYTE_LEVEL, post_processor=_BYTE_LEVEL,
    )  # fmt: skip


def _sentencepiece() -> dict[str, Any]:
    head = ["<pad>", "<s>", "</s>", "<tool>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces = [*"\u2581abehlo", "\u2581a", "ab", "\u2581ab", "aa", "he", "ll", "hell", "hello"]
    vocab = {token: token_id for token_id, token in enumerate([*head, *pieces])}
    merges = [["\u2581", "a"], ["a", "b"], ["\u2581", "ab"], ["a", "a"], ["h", "e"], ["l", "l"],
              ["he", "ll"], ["hell", "o"]]  # fmt: skip
    model = {
        "type": "BPE", "vocab": vocab, "merges": merges, "unk_token": "<unk>", "fuse_unk": True,
        "byte_fallback": True, "dropout": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "ignore_merges": False,
    }  # fmt: skip
    steps = _STEPS["normalizer"]
    return _file(
        model, 0,
        normalizer={"type": "Sequence", "normalizers": [steps[10], steps[12]]},
        post_processor=_STEPS["post_processor"][1],
        decoder={"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    )  # fmt: skip


def _unigram() -> dict[str, Any]:
    pieces = ["<pad>", "<s>", "</s>", "<tool>", "<unk>", "\u2581", "a", "b", "\u2581a", "ab"]
    vocab = [[piece, -float(rank)] for rank, piece in enumerate(pieces)]
    metaspace = _STEPS["pre_tokenizer"][10]
    model = {"type": "Unigram", "unk_id": 4, "vocab": vocab, "byte_fallback": False}
    return _file(model, 0, pre_tokenizer=metaspace, decoder=metaspace)


def _words(kind: str) -> dict[str, Any]:
    tokens = ["<pad>", "<s>", "</s>", "<tool>", "[UNK]", "a", "b", "hello", "##a", "##b", "##world"]
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    model: dict[str, Any] = {"type": kind, "vocab": vocab, "unk_token": "[UNK]"}
    if kind == "WordPiece":
        model |= {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    return _file(
        model, 0, normalizer={"type": "Lowercase"}, pre_tokenizer={"type": "Whitespace"},
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
    )  # fmt: skip


def _mutate(seeds: Sequence[bytes], rng: random.Random) -> bytes:
    data = rng.choice(seeds)
    if not data:
        return data
    which, content = data[:1], data[1:]
    if which == b"\0" and rng.random() < 0.8:
        content = _rebuild(content, rng)
    if rng.random() < 0.5:
        content = change_json(content, rng, _VALUES)
    if rng.random() < 0.15:
        spans = [Span(at, at + 1, False) for at in range(len(content)) if content[at] in b'{}[],:"']
        content = damage(content, spans, [seed[1:] for seed in seeds], rng)
    return which + content


def _rebuild(content: bytes, rng: random.Random) -> bytes:
    """The file with other steps in one or two of its parts, some in sequences, or another model."""
    try:
        file = json.loads(content)
    except (ValueError, RecursionError):
        return content
    if not isinstance(file, dict):
        return content
    for _ in range(rng.choice((1, 1, 2))):
        part = rng.choice((*_STEPS, "model", "added_tokens"))
        if part == "model":
            file["model"] = _strange_model(file.get("model"), rng)
        elif part == "added_tokens":
            file[part] = change(file.get(part), rng, _VALUES)
        else:
            count = rng.choice((1, 1, 2, 3, 8, 70))
            steps: list[Any] = [dict(rng.choice(_STEPS[part])) for _ in range(count)]
            if rng.random() < 0.2:
                steps = [change(steps[0], rng, _VALUES), *steps[1:]]
            file[part] = steps[0] if count == 1 else {"type": "Sequence", _SEQUENCES[part]: steps}
            for _ in range(rng.choice((0, 0, 0, 3, 90))):
                file[part] = {"type": "Sequence", _SEQUENCES[part]: [file[part]]}
    return json.dumps(file).encode()


def _strange_model(model: Any, rng: random.Random) -> Any:
    if not isinstance(model, dict):
        return model
    kind = rng.random()
    vocab = model.get("vocab")
    if kind < 0.25:
        return model | {
            "continuing_subword_prefix": rng.choice(("##", "a", "x" * 9, "\u2581")),
            "end_of_word_suffix": rng.choice((None, "</w>", "a")),
        }
    if kind < 0.5 and isinstance(vocab, dict):
        tokens = rng.sample(list(vocab), min(len(vocab), 6))
        merges = [[rng.choice(tokens), rng.choice(tokens)] for _ in range(6)]
        joined = {left + right: rng.randrange(400) for left, right in merges}
        return model | {"merges": merges, "vocab": rng.choice((vocab, vocab | joined))}
    if kind < 0.75:
        name = rng.choice(("BPE", "WordPiece", "WordLevel", "Unigram", None))
        return model | {"type": name}
    return model | {
        rng.choice(("dropout", "unk_token", "unk_id", "max_input_chars_per_word", "vocab",
                    "byte_fallback", "fuse_unk", "ignore_merges")): rng.choice(_VALUES)
    }  # fmt: skip


if __name__ == "__main__":
    main(partial(make_target, says_where=True), __doc__)
