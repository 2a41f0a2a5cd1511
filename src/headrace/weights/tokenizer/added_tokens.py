"""Flags of added tokens, which GGUF files have no key for, by the family whose tokens they are.

An added token may take the white space beside it with it: Phi-3's `<|user|>` swallows the line
break behind it, and the model was trained that way. A GGUF file holds the token and not the flag,
so the flags are data here, as the splitting rules are in `weights.tokenizer.pretokenizers`. A
folder states them, in tokenizer.json or in tokenizer_config.json, and then nothing here applies.

A family is known by the name in `general.name`, as in llama.cpp, or by tokens that no other family
has: a converter that writes "Phi 3 Mini", or a fine-tune of another name, has the same tokens.

Sources: llama.cpp llama-vocab.cpp (token attributes by name), tokenizer_config.json of
Phi-3-mini-4k-instruct (`added_tokens_decoder`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TokenFlags:
    """The flags by which an added token is found in a text, named as in tokenizer.json.

    The fourth flag there, `normalized`, is not here: tokens of GGUF files and of SentencePiece
    models are looked for in the text as it was written.
    """

    lstrip: bool = False
    """White space before the token is part of it."""
    rstrip: bool = False
    """White space behind the token is part of it."""
    single_word: bool = False
    """The token is not found inside a word."""

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> TokenFlags:
        """Those of one entry of `added_tokens` or `added_tokens_decoder`."""
        return cls(**{name: entry.get(name) is True for name in cls.__dataclass_fields__})


NO_FLAGS = TokenFlags()


@dataclass(frozen=True)
class FlagRule:
    """The flags of one family's added tokens, and what the family is known by."""

    models: frozenset[str]
    """Values of `tokenizer.ggml.model` the family has."""
    names: tuple[str, ...]
    """Parts of `general.name`, in lower case: a name with one of them is the family's."""
    marks: frozenset[str]
    """Tokens that only this family has all of, whatever its name; may be empty."""
    flags: TokenFlags
    """Of every added token that is not in `without`."""
    only: frozenset[str] | None = None
    """The tokens that have the flags; None for all added ones."""
    without: frozenset[str] = frozenset()
    """Added tokens that have none."""

    def applies(self, model: str, name: str, tokens: Collection[str]) -> bool:
        """Whether a file with this model, name and vocabulary is one of the family."""
        if model not in self.models:
            return False
        named = any(part in name.lower() for part in self.names)
        return named or bool(self.marks and self.marks.issubset(tokens))

    def of(self, text: str) -> TokenFlags:
        """The flags of one added token."""
        has_flags = text not in self.without and (self.only is None or text in self.only)
        return self.flags if has_flags else NO_FLAGS


FLAG_RULES: tuple[FlagRule, ...] = (
    # Phi-3 and Phi-3.5. Phi-4 is byte-level: llama.cpp gives its tokens no flags.
    FlagRule(
        models=frozenset({"llama"}),
        names=("phi-3", "phi3"),
        marks=frozenset({"<|assistant|>", "<|end|>", "<|placeholder1|>", "<|placeholder6|>"}),
        flags=TokenFlags(rstrip=True),
        without=frozenset({"<unk>", "<s>", "<|endoftext|>"}),
    ),
    FlagRule(
        models=frozenset({"gpt2"}),
        names=("modern-bert",),
        marks=frozenset(),
        flags=TokenFlags(lstrip=True),
        only=frozenset({"[MASK]"}),
    ),
)


def flag_rule(model: str, name: str, tokens: Collection[str]) -> FlagRule | None:
    """The rule for a GGUF file's added tokens; None where they have no flags.

    model: `tokenizer.ggml.model`. name: `general.name`, "" where there is none. tokens: the
    vocabulary, as something quick to look a token up in.
    """
    return next((rule for rule in FLAG_RULES if rule.applies(model, name, tokens)), None)
