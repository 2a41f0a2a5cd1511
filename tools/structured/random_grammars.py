"""Regular expressions and GBNF grammars drawn at random, with texts that belong to them.

The expressions are written in what Rust's, Python's and RE2's syntaxes share.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

_LETTERS = "abc01 .-é"
_CLASSES: tuple[tuple[str, str], ...] = (
    ("[a-c]", "abc"), ("[^a]", "bc01 .-é"), ("[0-9a]", "01a"), (".", _LETTERS), ("[é-]", "é-"),
    (r"\.", "."), ("[^0-9 ]", "abc.-é"), ("[ -]", " -"), (r"[\d.]", "01."), (r"\d", "01"),
)  # fmt: skip

Sampler = Callable[[random.Random], str]


class Expression:
    """An expression, and what draws a text that it matches as a whole."""

    def __init__(self, text: str, sample: Sampler) -> None:
        self.text = text
        self.sample = sample


def expression(rng: random.Random, depth: int = 3) -> Expression:
    """An expression."""
    kind = rng.choice(("letter", "class") if depth == 0 else ("class", "join", "either", "repeat"))
    if kind == "letter":
        letter = rng.choice("abc01é ")
        return Expression(letter, lambda _: letter)
    if kind == "class":
        written, members = rng.choice(_CLASSES)
        return Expression(written, lambda chance: chance.choice(members))
    if kind == "repeat":
        return _repeated(expression(rng, depth - 1), rng)
    parts = [expression(rng, depth - 1) for _ in range(rng.choice((1, 2, 3)))]
    if kind == "join":
        return Expression(
            "".join(part.text for part in parts),
            lambda chance: "".join(part.sample(chance) for part in parts),
        )
    written = "|".join(part.text for part in parts)
    opened = rng.choice(("(", "(?:"))
    return Expression(f"{opened}{written})", lambda chance: chance.choice(parts).sample(chance))


def _repeated(part: Expression, rng: random.Random) -> Expression:
    low, high, mark = rng.choice(
        ((0, 3, "*"), (1, 3, "+"), (0, 1, "?"), (2, 2, "{2}"), (1, 3, "{1,3}"), (0, 2, "{0,2}"),
         (2, 4, "{2,}"), (0, 0, "{0}"))
    )  # fmt: skip
    return Expression(
        f"(?:{part.text}){mark}",
        lambda chance: "".join(part.sample(chance) for _ in range(chance.randint(low, high))),
    )


_ESCAPES = (r"\x41", r"\n", r"\"", r"\\", r"\u00e9", r"\t", r"\x00", r"\U0001F600", "a", "b", "0")
_GBNF_CLASSES = (
    "[a-c]", "[^a-b]", r"[\x30-\x39]", r"[^\n\"]", r"[\]a]", r"[\u00e9-\u00ff]", "[0-]", r"[\\/]",
    r"[^\x00-\x1F]", "[#]", "[.&~]",
)  # fmt: skip


def gbnf(rng: random.Random) -> str:
    """A grammar of up to five rules, which may refer to each other in any way."""
    names = ["root", *(f"r{index}" for index in range(rng.choice((0, 1, 2, 4))))]
    return "\n".join(f"{name} ::= {_ways(rng, names, 2)}" for name in names) + "\n"


def _ways(rng: random.Random, names: list[str], depth: int) -> str:
    return " | ".join(_way(rng, names, depth) for _ in range(rng.choice((1, 2, 3))))


def _way(rng: random.Random, names: list[str], depth: int) -> str:
    return " ".join(_part(rng, names, depth) for _ in range(rng.choice((1, 1, 2, 3))))


def _part(rng: random.Random, names: list[str], depth: int) -> str:
    chance = rng.random()
    if chance < 0.35:
        part = '"' + "".join(rng.choice(_ESCAPES) for _ in range(rng.choice((1, 1, 2, 3)))) + '"'
    elif chance < 0.6:
        part = rng.choice(_GBNF_CLASSES)
    elif chance < 0.8 or not depth:
        part = rng.choice(names)
    else:
        part = f"({_ways(rng, names, depth - 1)})"
    if rng.random() < 0.25:
        part += rng.choice(("*", "+", "?", "{2}", "{0,2}", "{1,}", "{1,3}"))
    return part


def changed(text: str, rng: random.Random) -> str:
    """A text that differs from one in one place."""
    at = rng.randint(0, len(text))
    put: str = rng.choice(("", *_LETTERS, "\n", '"'))
    return text[:at] + put + text[at + rng.randint(0, 1) :]


def several(text: str, rng: random.Random, count: int) -> Iterator[str]:
    """Texts near one."""
    for _ in range(count):
        yield changed(text, rng)
