"""How long a mask takes within free text: reasoning, and answers in which calls may begin.

    python tools/structured/free_text_masks.py

The embedded model's marks are text, so that every "<" may begin one. Prints microseconds a token.
"""

from __future__ import annotations

import time

import numpy as np

from headrace.answer_formats.call_syntax import AnswerFormat
from headrace.answer_formats.formats import call_format, reasoning_format
from headrace.embedded import embedded_model
from headrace.engine.grammars.vocabulary import vocabulary_maker
from headrace.structured.compile import GrammarTokenizer, compile_grammar
from headrace.structured.grammar import Grammar
from headrace.structured.reasoning import after_reasoning
from headrace.structured.tools.call_grammar import CallableTool, tool_call_grammar
from headrace.structured.vocabulary import Vocabulary
from headrace.weights.open import open_checkpoint

_LINE = (
    "The list<int> of values is a < b and so on; we take the first one, as it is the shortest.\n"
)
_TEXTS = {"prose": _LINE.replace("<", "") * 16, "with <": _LINE * 16}
_FORMATS = ("hermes", "qwen3_coder", "deepseek")
_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def main() -> None:
    tokenizer = open_checkpoint(embedded_model()).tokenizer
    num_tokens = tokenizer.num_tokens
    make = vocabulary_maker(tokenizer, num_tokens) if num_tokens is not None else None
    if make is None:
        raise SystemExit("the embedded model's tokens have no bytes")
    vocabulary = make()
    compiled = GrammarTokenizer(vocabulary)
    think = reasoning_format("think")
    tools = [CallableTool(name="get_weather", parameters=_SCHEMA)]
    grammars = {
        "reasoning before a regular expression": after_reasoning(
            Grammar("regex", "a+"), think, opened=True, special={}
        )
    }
    for name in _FORMATS:
        grammars[f"reasoning and text before calls of {name}"] = tool_call_grammar(
            AnswerFormat(call_format(name), think),
            tools,
            choice="auto",
            parallel=True,
            opened=True,
            special={},
        )
    for kind, text in _TEXTS.items():
        for name, grammar in grammars.items():
            answer = text if name.endswith("expression") else f"{text}</think>{text}"
            times_us = _times_us(grammar, compiled, vocabulary, answer)
            p50, p90, p99 = np.percentile(times_us, (50, 90, 99))
            print(
                f"{name}, {kind}: p50 {p50:.1f} us, p90 {p90:.1f} us, p99 {p99:.1f} us "
                f"({len(times_us)} tokens of {len(vocabulary.token_bytes)})"
            )


def _times_us(
    grammar: Grammar, tokenizer: GrammarTokenizer, vocabulary: Vocabulary, text: str
) -> list[float]:
    """Of the mask before each token of a text that the grammar allows."""
    matcher = compile_grammar(grammar, tokenizer).matcher()
    words = np.zeros(tokenizer.end_id // 32 + 1, np.uint32)
    times_us: list[float] = []
    for token_id in vocabulary.ids_of(text):
        begun_ns = time.perf_counter_ns()
        matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        times_us.append((time.perf_counter_ns() - begun_ns) / 1000)
        if not matcher.consume_tokens([token_id]):
            raise SystemExit(f"the grammar does not allow the text: {matcher.get_error()}")
    return times_us


if __name__ == "__main__":
    main()
