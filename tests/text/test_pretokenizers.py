"""How each named rule splits text: by example, as the expression it stands in for, in time."""

from __future__ import annotations

import random
import time
import warnings
from functools import cache

import pytest
from tokenizers import Regex, pre_tokenizers

from headrace.errors import UnsupportedModelError
from headrace.weights.tokenizer.pretokenizers import PRETOKENIZERS, name_of, splitting_of
from tests.text.vocabularies import byte_level, from_gguf

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3_WORDS = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    + CONTRACTIONS
    + r"?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    + CONTRACTIONS
    + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|"
    + SPACES
)
CASCADE = "".join(rf"\s{{{n}}}(?!\S)|" for n in (512, 256, 128, 64, 32, 16, 8, 4))
# What the models' own files have, where a rule differs from it in writing.
ORIGINALS = {
    "jais-2": (LLAMA3_WORDS + r"\s*[\r\n]+|" + CASCADE + r"\s{1,2}(?!\S)|\s{1}",),
    "tiny_aya": (r"\d{1,3}(?=(?:\d{3})*\b)", CASED),
    "superbpe": (r"\p{N}+", r"(?=(\d{3})+(?!\d))"),
}
EXAMPLES = {
    "default": ("it's 1234", ["it", "'", "s", " ", "123", "4"]),
    "gpt-2": ("it's 1234  x", ["it", "'s", " 1234", " ", " x"]),
    "starcoder": ("a 12", ["a", " ", "1", "2"]),
    "llama-bpe": ("IT'S 1234\n\n x", ["IT", "'S", " ", "123", "4", "\n\n", " x"]),
    "dbrx": ("(a)1234", ["(a", ")", "123", "4"]),
    "qwen2": ("a12 x\u0301y", ["a", "1", "2", " x", "\u0301y"]),
    "qwen35": ("a12 x\u0301y", ["a", "1", "2", " x\u0301y"]),
    "deepseek-llm": ("Hi, 漢12\n\nñ ß", ["Hi", ",", " ", "漢", "12", "\n", "\n", "ñ", " ß"]),
    "deepseek-coder": ("Hi, 漢字12 한", ["Hi", ",", " ", "漢字", "1", "2", " ", "한"]),
    "deepseek-v3": ("(abc 1234漢x\u0301 !", ["(abc", " ", "123", "4", "漢", "x\u0301", " !"]),
    "falcon": ("a`b 12345 don't", ["a", "`", "b", " ", "123", "45", " don", "'", "t"]),
    "tekken": ("HelloWorld ABd 12 a/\n/", ["Hello", "World", " ABd", " ", "1", "2", " a", "/\n/"]),
    "gpt-4o": ("HelloWorld's 1234 漢字", ["Hello", "World's", " ", "123", "4", " 漢字"]),
    "bloom": ("a b. 12x, d", ["a", " b", ".", " 12x", ",", " d"]),
    "viking": ("a b. 12", ["a", " b", ".", " ", "1", "2"]),
    "kimi-k2": ("漢字Hi漢 You's 1234/\n", ["漢字", "Hi", "漢", " You's", " ", "123", "4", "/\n"]),
    "superbpe": ("by the way 1234567", ["by the way ", "1", "234", "567"]),
    "afmoe": ("x12345 한か漢 (ab", ["x", "12", "345", " ", "한か漢", " (", "ab"]),
    "tiny_aya": ("1234567 12345a Ab", ["1", "234", "567", " ", "123", "45", "a", " Ab"]),
    "chameleon": ("x  IMGIMGABZ12!?", ["x", "  ", "IMGIMGABZ", "1", "2", "!", "?"]),
    "bailingmoe": ("it's 12!!\n\n", ["it", "'s", " ", "1", "2", "!!\n\n"]),
    "seed-coder": ("it's 12!!\n\nx", ["it", "'s", " ", "1", "2", "!!", "\n\n", "x"]),
    "exaone-moe": ("ab cd 1!\nx", ["ab cd", " ", "1", "!\n", "x"]),
    "jais-2": ("a" + " " * 21 + "b", ["a", " " * 16, " " * 4, " b"]),
    "youtu": ("漢字Hello…한 12", ["漢字", "Hello", "…", "한", " ", "1", "2"]),
    "laguna": ("a!\n\nb", ["a", "!", "\n\n", "b"]),
    "minicpm5": ("x 12345", ["x", " ", "123", "45"]),
    "ufakzeka": ("Ali'nin 12", ["Ali", "'nin", " ", "1", "2"]),
}  # fmt: skip
# One name of each rule.
RULES = sorted(
    {name_of(rule.patterns, rule.ignore_merges) or "" for rule in PRETOKENIZERS.values()}
)
RUNS = (
    "a",
    "A",
    " ",
    "\n",
    "1",
    "½",
    "漢",
    "\u0301",
    "'",
    ".",
    "<",
    "\u00a0",
    "aA",
    "a ",
    " \n",
    "'s",
)


@cache
def _splitter(patterns: tuple[str, ...]) -> pre_tokenizers.Sequence:
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    )


def pieces(patterns: tuple[str, ...], text: str) -> list[str]:
    return [piece for piece, _ in _splitter(patterns).pre_tokenize_str(text)]


def test_every_rule_has_an_example() -> None:
    assert {
        name_of(PRETOKENIZERS[n].patterns, PRETOKENIZERS[n].ignore_merges) for n in EXAMPLES
    } == {*RULES}


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_examples(name: str) -> None:
    text, expected = EXAMPLES[name]
    assert pieces(PRETOKENIZERS[name].patterns, text) == expected


def test_names_of_one_rule() -> None:
    alike = (
        ("gpt-2", "phi-2", "olmo", "exaone4", "trillion", "granite-docling"),
        ("starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "mellum2"),
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "lfm2"),
        ("dbrx", "smaug-bpe", "chatglm-bpe", "glm4"),
        ("deepseek-r1-qwen", "megrez", "stablelm2", "hunyuan", "grok-2"),
        ("deepseek-v3", "hunyuan-dense", "joyai-llm"),
        ("gpt-4o", "llama4", "minimax-m2"),
        ("bloom", "poro-chat", "gpt3-finnish"),
    )
    for names in alike:
        assert len({PRETOKENIZERS[name] for name in names}) == 1, names
    flags = {name: (rule.ignore_merges, rule.add_bos) for name, rule in PRETOKENIZERS.items()}
    assert flags["llama-bpe"] == flags["tekken"] == (True, True)
    assert flags["dbrx"] == flags["gpt-4o"] == flags["qwen2"] == (False, False)
    assert flags["chameleon"] == (False, True) and flags["youtu"] == (True, False)


@pytest.mark.parametrize("name", RULES)
def test_nothing_is_lost(name: str) -> None:
    source = random.Random(name)
    alphabet = "aZé漢かไ한 \t\r\n\u00a01٣½'.,!/(_\u0301\U0001f600sT"
    for _ in range(300):
        text = "".join(source.choice(alphabet) for _ in range(source.randint(1, 30)))
        assert "".join(pieces(PRETOKENIZERS[name].patterns, text)) == text


@pytest.mark.parametrize("name", sorted(ORIGINALS))
def test_rules_that_are_written_otherwise_split_alike(name: str) -> None:
    """(superbpe but for digits beside other numerals: ½12 is one piece there, here two.)"""
    source = random.Random(name)
    alphabet = "  \n\r\t\u00a0a!1234567٣_é'.\u0301漢"
    for _ in range(4000):
        text = "".join(source.choice(alphabet) for _ in range(source.randint(1, 14)))
        if source.random() < 0.05:
            text = source.choice(" \n\u00a0") * source.randint(1, 1200) + text
        assert pieces(PRETOKENIZERS[name].patterns, text) == pieces(ORIGINALS[name], text), text


# Their patterns take longer than others for every character.
SLOW = ("chameleon", "deepseek-coder", "deepseek-llm", "kimi-k2", "laguna", "youtu")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long) if name in SLOW else name for name in RULES],
)
def test_long_runs_take_no_quadratic_time(name: str) -> None:
    """12 times the text may take 70 times as long; quadratic is 144."""
    patterns = PRETOKENIZERS[name].patterns

    def took_once(text: str) -> float:
        began = time.thread_time()
        pieces(patterns, text)
        return time.thread_time() - began

    def took(text: str) -> float:
        return min(took_once(text), took_once(text))

    for run in RUNS:
        for tail in ("", "a"):
            short, long = run * (1500 // len(run)) + tail, run * (18_000 // len(run)) + tail
            if took_once(long) < 70 * 2e-3:
                continue  # whatever the short one takes
            assert took(long) < 70 * max(took(short), 2e-3), (run, tail)


def test_unknown_and_missing_names_are_said_loudly() -> None:
    with pytest.raises(
        UnsupportedModelError, match=r"'nonsense', a way of splitting .*--tokenizer-pre"
    ):
        from_gguf(byte_level(pre="nonsense"))
    unnamed = byte_level()
    del unnamed["pre"]
    with pytest.warns(UserWarning, match="lowers its quality.*--tokenizer-pre NAME"):
        from_gguf(unnamed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_gguf(byte_level(pre="nonsense"), pre="gpt-2")
    assert splitting_of(unnamed) is not None and "lowers quality" in str(splitting_of(unnamed))
    assert "UNKNOWN" in str(splitting_of(byte_level(pre="nonsense")))
    assert splitting_of(byte_level()) == "gpt-2"
    assert splitting_of({"model": "llama", "pre": "nonsense"}) is None
