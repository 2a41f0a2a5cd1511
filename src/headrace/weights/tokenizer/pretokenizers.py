r"""Pre-tokenizers of byte-level BPE by the name a GGUF file gives in `tokenizer.ggml.pre`.

A file names its splitting rule and does not hold it, so the rules are data here. Each pattern is
applied to the pieces the one before left; what matches and what lies between both stay. Names
without an entry are refused: a wrong split gives plausible ids and a worse model. `headrace.text`
builds tokenizers by these rules; `name_of` is the way back, for writing files.
Patterns are those of the models' own tokenizer.json (Oniguruma syntax), as llama.cpp quotes them
in llama-vocab.cpp beside what it runs; where an original takes quadratic time on long runs of
digits or spaces an equal one stands in for it, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
DIGIT_PATTERN = r"\p{N}"
_THREE_DIGITS = r"\p{N}{1,3}"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _SPACES
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_QWEN35 = _QWEN2.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"\s\p{L}", r"\s\p{L}\p{M}")


def _cased(*, suffix: str = "", digits: str = _THREE_DIGITS, only: str = "") -> str:
    """Words cut before an upper-case letter that follows a lower-case one (GPT-4o and its kin).

    suffix: what may follow a word. only: narrows the letters of words.
    """
    upper = rf"[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}{only}]"
    lower = rf"[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}{only}]"
    before = r"[^\r\n\p{L}\p{N}]?"
    words = f"{before}{upper}*{lower}+{suffix}|{before}{upper}+{lower}*{suffix}"
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"


_GPT4O = _cased(suffix=_CONTRACTIONS + "?")
_TEKKEN = _cased(digits=r"\p{N}")
_KIMI = r"\p{Han}+|" + _cased(suffix=_CONTRACTIONS + "?", only=r"&&[^\p{Han}]").replace(
    r"[\r\n/]*", r"[\r\n]*"
)
# A run of spaces without line breaks is looked through for one at its beginning alone, not again
# after each piece of 512.
_JAIS2_SPACES = (
    r"(?:(?<!\s)|(?<=[\r\n]))\s*[\r\n]+|"
    + "".join(rf"\s{{{count}}}(?!\S)|" for count in (512, 256, 128, 64, 32, 16, 8, 4))
    + r"\s{1,2}(?!\S)|\s{1}"
)
_HAN_AND_KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_DEEPSEEK_V3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + _SPACES
)
_DEEPSEEK_ASIAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
# The cased letters of the Unicode version DeepSeek LLM was made with, one by one in its file.
_DEEPSEEK_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5"
    "\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba"
    "\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45"
    "\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe"
    "\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc"
    "\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    "\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06"
    "\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
    "\U0001e900-\U0001e943"
)
_DEEPSEEK_MARKS = "!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002"
_BLOOM = r" ?[^(\s|.,!?" + "\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c" + ")]+"
_AFMOE_ASIAN = (
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf"
    "\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af"
    "\u1100-\u11ff]+"
)
_YOUTU_ASIAN = (
    "[\uac00-\ud7a3\u3131-\u318e]+"
    "|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+"
    "|[\u3105-\u312f]+|" + _HAN_AND_KANA
)

# Digits in threes from the right: a run of its own, then the one or two that are left over at its
# beginning, then threes. In one expression every three would look ahead to the end of the run.
_RIGHT_THREES = (r"\p{N}+", r"\A\p{N}{1,2}(?=(?:\p{N}{3})*\z)", r"\p{N}{3}")


@dataclass(frozen=True)
class PreTokenizer:
    """Splitting rule of one family and what else its name implies."""

    patterns: tuple[str, ...]
    """Regexes in order."""
    ignore_merges: bool = False
    """A whole word found in the vocabulary is taken without merging."""
    add_bos: bool = False
    """The default where the file does not state add_bos_token."""
    nfc: bool = False
    """Text is brought to Unicode NFC first, as the family's tokenizer.json does. (llama.cpp leaves
    that out, so its ids differ on decomposed text; the model was trained with it.)."""


_GPT2_RULE = PreTokenizer((GPT2_PATTERN,))
_LLAMA3_RULE = PreTokenizer((_LLAMA3,))
_LLAMA3_BOS_RULE = PreTokenizer((_LLAMA3,), ignore_merges=True, add_bos=True)
_QWEN2_RULE = PreTokenizer((_QWEN2,))
_DIGITS_GPT2_RULE = PreTokenizer((DIGIT_PATTERN, GPT2_PATTERN))
_DEEPSEEK_V3_RULE = PreTokenizer((_THREE_DIGITS, _HAN_AND_KANA, _DEEPSEEK_V3))
_GPT4O_RULE = PreTokenizer((_GPT4O,))
_BLOOM_RULE = PreTokenizer((_BLOOM,))
# The left-over digits of a run that no letter follows; the word pattern cuts the rest in threes.
_AYA_RULE = PreTokenizer(
    (r"(?<!\d)\d++(?!\w)", r"\A\d{1,2}(?=(?:\d{3})*\z)", _GPT4O),
)
_BAILING_RULE = PreTokenizer(
    (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
        r"|\s*[\r\n]|\s+(?!\S)|\s+",
    )
)


def _alike(names: str, rule: PreTokenizer) -> dict[str, PreTokenizer]:
    return dict.fromkeys(names.split(), rule)


# What llama.cpp falls back to when a file names no rule. No model was trained with it.
DEFAULT = PreTokenizer(
    (r"[\p{P}\$\+<=>\^~\|]+", GPT2_PATTERN, r"\p{N}+", r"[0-9][0-9][0-9]"),
)

# Of rules that are the same, the first name is the one written.
PRETOKENIZERS: dict[str, PreTokenizer] = {
    "default": DEFAULT,
    **_alike(
        "gpt-2 phi-2 mpt olmo jais exaone4 modern-bert trillion granite-docling gigachat a.x-4.0 "
        "mellum",
        _GPT2_RULE,
    ),
    **_alike(
        "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2", _DIGITS_GPT2_RULE
    ),
    **_alike("llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2", _LLAMA3_BOS_RULE),
    **_alike("dbrx smaug-bpe chatglm-bpe glm4", _LLAMA3_RULE),
    "qwen2": PreTokenizer((_QWEN2,), nfc=True),
    **_alike("deepseek-r1-qwen megrez stablelm2 hunyuan grok-2 solar-open kormo", _QWEN2_RULE),
    "qwen35": PreTokenizer((_QWEN35,), nfc=True),
    "deepseek-llm": PreTokenizer(
        (
            r"[\r\n]",
            rf"\s?[{_DEEPSEEK_LETTERS}]+",
            rf"\s?[{_DEEPSEEK_MARKS}]+",
            r"\s+$",
            _DEEPSEEK_ASIAN,
            r"\p{N}+",
        )
    ),
    "deepseek-coder": PreTokenizer(
        (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_ASIAN, r"\p{N}"),
    ),
    **_alike("deepseek-v3 hunyuan-dense joyai-llm hy_v4", _DEEPSEEK_V3_RULE),
    "falcon": PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", GPT2_PATTERN, r"[0-9][0-9][0-9]")),
    "tekken": PreTokenizer((_TEKKEN,), ignore_merges=True, add_bos=True),
    **_alike("gpt-4o llama4 minimax-m2 kanana2 talkie", _GPT4O_RULE),
    **_alike("bloom poro-chat gpt3-finnish", _BLOOM_RULE),
    "viking": PreTokenizer((_BLOOM, r"\p{N}")),
    "kimi-k2": PreTokenizer((_KIMI,)),
    "superbpe": PreTokenizer(_RIGHT_THREES),
    "afmoe": PreTokenizer((*_RIGHT_THREES, _AFMOE_ASIAN, _DEEPSEEK_V3)),
    **_alike("tiny_aya cohere2moe", _AYA_RULE),
    "chameleon": PreTokenizer(
        (
            r"<sentinel:[0-9]+>",
            r"IMGIMG[A-I]{1,4}Z",
            r"[\t\n]|    |  ",
            r"\p{N}",
            r"[\p{P}!-/:-@\[-`{-~]",
            GPT2_PATTERN,
        ),
        add_bos=True,
    ),
    **_alike("bailingmoe bailingmoe2 llada-moe", _BAILING_RULE),
    "seed-coder": PreTokenizer(
        (_CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|" + _SPACES,)
    ),
    "exaone-moe": PreTokenizer(
        (
            _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
        )
    ),
    "jais-2": PreTokenizer((_LLAMA3.replace(_SPACES, _JAIS2_SPACES),)),
    "youtu": PreTokenizer(
        (_YOUTU_ASIAN, _cased(suffix=_CONTRACTIONS + "?", digits=r"\p{N}")), ignore_merges=True
    ),
    "laguna": PreTokenizer((r"[^\n]+|[\n]+", _QWEN2)),
    "minicpm5": PreTokenizer(
        (_THREE_DIGITS, _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}+")), ignore_merges=True
    ),
    "ufakzeka": PreTokenizer((_QWEN2.removeprefix(_CONTRACTIONS + "|"),)),
}


def splitting_of(gguf: Mapping[str, Any]) -> str | None:
    """What entries of `tokenizer.ggml.*` say of splitting text, for people; None where their kind
    of tokenizer splits nothing."""
    if gguf.get("model") != "gpt2":
        return None
    name = gguf.get("pre")
    if not name:
        return "not named: a generic rule is used, which lowers quality; --tokenizer-pre names one"
    known = "" if str(name) in PRETOKENIZERS else " (UNKNOWN: --tokenizer-pre must name another)"
    return f"{name}{known}"


def name_of(patterns: tuple[str | None, ...], ignore_merges: bool) -> str | None:
    """The name llama.cpp gives this way of splitting, or None. nfc does not count: to most readers
    a name says nothing of it. Line breaks may be written as themselves, as some files do."""
    spelled = tuple(
        None if pattern is None else pattern.replace("\r", r"\r").replace("\n", r"\n")
        for pattern in patterns
    )
    for name, rule in PRETOKENIZERS.items():
        if (rule.patterns, rule.ignore_merges) == (spelled, ignore_merges):
            return name
    return None
