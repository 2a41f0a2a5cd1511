"""Rendered text in pieces: few of them, and each control token allowed where it was before."""

from __future__ import annotations

import random
import re

import pytest

from headrace.text import ChatTemplate, Tokenizer
from headrace.text.user_text import Disguise, disguises, segments_of
from tests.text.vocabularies import byte_level, from_gguf
from tests.tiny import CHAT_TEMPLATE

WORDS = ("<", "<|end|>", "<|start|>", "hello", " ", "b", "|", ">", "<think>", "\n", "é" * 70, "<<")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return from_gguf(byte_level())


def _one_by_one(rendered: str, disguise: Disguise) -> list[tuple[str, bool]]:
    parts = re.split(f"([{''.join(disguise.back)}])", rendered)
    return [(disguise.back.get(part, part), part not in disguise.back) for part in parts if part]


def test_joined_pieces_give_the_ids_of_pieces_of_one_character(tokenizer: Tokenizer) -> None:
    source = random.Random(3)
    joined = 0
    for _ in range(400):
        user = ["".join(source.choices(WORDS, k=source.randint(1, 9))) for _ in range(2)]
        for disguise in disguises({"a": user[0], "b": user[1]}, tokenizer.control_tokens):
            hidden = disguise.apply({"a": user[0], "b": user[1]})
            own = [source.choice(WORDS) for _ in range(3)]  # of the template, never hidden
            rendered = own[0] + hidden["a"] + own[1] + hidden["b"] + own[2]
            pieces = segments_of(rendered, disguise)
            alone = _one_by_one(rendered, disguise)
            assert "".join(text for text, _ in pieces) == "".join(text for text, _ in alone)
            assert tokenizer.encode_segments(pieces) == tokenizer.encode_segments(alone)
            joined += len(alone) - len(pieces)
    assert joined > 400


@pytest.mark.parametrize("unit", ["<", "<b", "<b\n<", "< some words "])
def test_a_text_of_beginnings_is_few_pieces(tokenizer: Tokenizer, unit: str) -> None:
    pieces = ChatTemplate(CHAT_TEMPLATE).render_segments(
        [{"role": "user", "content": unit * (100_000 // len(unit))}],
        control_tokens=("<|im_start|>", "<|im_end|>"),
        add_generation_prompt=True,
        continue_final_message=False,
    )
    assert 3 <= len(pieces) < 1000
    assert [text for text, allowed in pieces if allowed and "<" in text] == [
        pieces[0][0], pieces[-1][0]
    ]  # fmt: skip
