"""Pre-tokenizers of byte-level BPE by the name a GGUF file gives in `tokenizer.ggml.pre`.

A file names its splitting rule and does not hold it, so the rules are data here. Each pattern is
applied to the pieces the one before left; what matches and what lies between both stay. Names
without an entry are refused: a wrong split gives plausible ids and a worse model. `headrace.text`
builds tokenizers by these rules; `name_of` is the way back, for writing files.
Patterns are those of the models' own tokenizer.json (Oniguruma syntax), which llama.cpp restates
in llama-vocab.cpp for engines without it.
"""

from __future__ import annotations

from dataclasses import dataclass

GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
DIGIT_PATTERN = r"\p{N}"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


@dataclass(frozen=True)
class PreTokenizer:
    """Splitting rule of one family and what else its name implies.

    patterns: regexes in order. ignore_merges: a whole word found in the vocabulary is taken
    without merging. add_bos: the default where the file does not state add_bos_token.
    nfc: text is brought to Unicode NFC first, as the family's tokenizer.json does. (llama.cpp
    leaves that out, so its ids differ on decomposed text; the model was trained with it.)
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False
    nfc: bool = False


_GPT2_RULE = PreTokenizer((GPT2_PATTERN,))
_LLAMA3_RULE = PreTokenizer((_LLAMA3,))
_LLAMA3_BOS_RULE = PreTokenizer((_LLAMA3,), ignore_merges=True, add_bos=True)
_QWEN2_RULE = PreTokenizer((_QWEN2,))
_DIGITS_GPT2_RULE = PreTokenizer((DIGIT_PATTERN, GPT2_PATTERN))

# What llama.cpp falls back to when a file names no rule. No model was trained with it.
DEFAULT = PreTokenizer(
    (r"[\p{P}\$\+<=>\^~\|]+", GPT2_PATTERN, r"\p{N}+", r"[0-9][0-9][0-9]"),
)

PRETOKENIZERS: dict[str, PreTokenizer] = {
    "default": DEFAULT,
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jais"), _GPT2_RULE),
    **dict.fromkeys(
        ("starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b"),
        _DIGITS_GPT2_RULE,
    ),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "lfm2"), _LLAMA3_BOS_RULE
    ),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe", "glm4"), _LLAMA3_RULE),
    "qwen2": PreTokenizer((_QWEN2,), nfc=True),
    **dict.fromkeys(("deepseek-r1-qwen", "megrez", "stablelm2", "hunyuan"), _QWEN2_RULE),
    "deepseek-coder": PreTokenizer(
        (
            r"[\r\n]",
            r"\s?\p{L}+",
            r"\s?\p{P}+",
            "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
            r"\p{N}",
        ),
    ),
}


def name_of(patterns: tuple[str | None, ...], ignore_merges: bool) -> str | None:
    """The name llama.cpp gives this way of splitting, or None. nfc does not count: to most readers
    a name says nothing of it."""
    for name, rule in PRETOKENIZERS.items():
        if (rule.patterns, rule.ignore_merges) == (patterns, ignore_merges):
            return name
    return None
