"""Grammars drawn at random have the texts that judges of their own say; a fixed part of what
`tools.fuzz.structured` tries, and the grammars that llama.cpp ships.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from headrace.structured.json_schema.grammar import of_schema
from headrace.structured.request import grammar_of
from headrace.structured.vocabulary import Vocabulary
from tools.fuzz import harness, structured
from tools.structured.gbnf import Gbnf
from tools.structured.language import Language, Splits, byte_tokenizer
from tools.structured.schema_judge import SchemaJudge, strict_json
from tools.structured.spelling import AS_WRITTEN, NUMBERS, ORDER, OTHER, cause


def _inputs(kind: str, seed: int, count: int) -> list[bytes]:
    drawn = (
        structured.mutate([b"{}"], random.Random(f"{seed}:{number}")) for number in range(8 * count)
    )
    return [data for data in drawn if json.loads(data)["kind"] == kind][:count]


@pytest.mark.parametrize("kind", ["schema", "regex", "gbnf"])
def test_grammars_drawn_at_random_have_the_texts_of_their_judge(kind: str) -> None:
    ended = [structured.attempt(data) for data in _inputs(kind, seed=3, count=10)]
    assert ended.count(kind) >= 4


@pytest.mark.long
def test_many_grammars_drawn_at_random_have_the_texts_of_their_judge() -> None:
    report = harness.run(structured.make_target(), seed=11, iterations=250, limit_s=60)
    assert report.findings == {}
    assert {"schema", "regex", "gbnf"} <= report.outcomes.keys()


def test_the_fuzzer_finds_a_grammar_that_accepts_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    lenient = json.dumps({"kind": "schema", "seed": 1, "grammar": {"type": "string"}}).encode()
    monkeypatch.setattr(SchemaJudge, "accepts", lambda self, value: False)
    with pytest.raises(structured.WrongAnswerError, match="accepted though invalid"):
        structured.attempt(lenient)


@pytest.mark.parametrize(
    "name",
    # Of arithmetic the end of a line is read as white space of the expression before it, always.
    ["c", "chess", "english", "japanese", "json", "json_arr", "list"],
)
def test_grammars_of_llamacpp_have_the_texts_that_they_describe(
    shared_assets: Path, name: str
) -> None:
    text = (shared_assets / f"conformance/gbnf-grammars/{name}.gbnf").read_text(encoding="utf-8")
    grammar = grammar_of({"grammar": text})
    assert grammar is not None
    language, judge = Language(grammar), Gbnf(text)
    written = [language.walk(random.Random(seed), 12) for seed in range(12)]
    texts = [each.decode() for each in written if each is not None]
    assert len(texts) >= 2
    assert [each for each in texts if not judge.has(each)] == []


@pytest.mark.parametrize(
    ("schema", "value", "why"),
    [
        ({"properties": {"a": {}, "b": {}}}, {"a": 1, "b": 2}, AS_WRITTEN),
        ({"properties": {"a": {}, "b": {}}}, {"b": 1, "a": 2}, ORDER),
        ({"items": {"type": "integer"}}, [1.0], NUMBERS),
        ({"multipleOf": 0.25}, 0.5, NUMBERS),
        ({"type": "integer"}, "a", OTHER),
    ],
)
def test_the_cause_of_a_refusal_is_the_least_that_has_to_be_written_otherwise(
    schema: object, value: object, why: str
) -> None:
    assert cause(Language(of_schema(schema, "x")), value) == why


def test_the_earley_parser_knows_repeats_classes_and_empty_rules() -> None:
    judge = Gbnf('root ::= "a"* b{2,3} | "x" [^0-9\\]]+ # end\nb ::= "b" | ( "c" root )?')
    assert [text for text in ("", "aabb", "bbb", "xq", "bcab") if not judge.has(text)] == []
    assert [text for text in ("abbbb", "x1", "x", "x]", "d") if judge.has(text)] == []
    assert list(Gbnf('root ::= "a" "b"').prefixes("ac")) == [False, False, None]


def test_a_mask_allows_what_can_be_completed_and_nothing_else() -> None:
    """By an Earley parser, at every place of some texts, for every byte below 128."""
    text = 'root ::= ("x" [a-c]{1,2} | "(" root ")")+ ("!" | "\\x0A")?'
    judge = Gbnf(text)
    grammar = grammar_of({"grammar": text})
    assert grammar is not None
    language = Language(grammar)
    for written in ("xaxbc!", "((xa))xb\n", "(xcc"):
        matcher = language.matcher()
        for place in range(len(written) + 1):
            prefix = written[:place]
            allowed = language.allowed(matcher)
            viable = [[*judge.prefixes(prefix + chr(byte))][-1] is not None for byte in range(128)]
            assert allowed[:128].tolist() == viable, prefix
            assert bool(allowed[byte_tokenizer().end_id]) == judge.has(prefix)
            if place < len(written):
                assert matcher.consume_token(ord(written[place]))


def test_every_way_of_cutting_a_text_gives_its_bytes() -> None:
    pieces = [*(bytes([byte]) for byte in range(256)), b"hell", b"hello", b'{"', b'": "']
    words = Vocabulary(pieces, [], lambda text: list(text.encode()))
    splits = Splits(words)
    data = '{"hello": "hell é"}'.encode()
    for ids in (
        splits.greedy(data), splits.bytewise(data), splits.drawn(data, random.Random(0))
    ):  # fmt: skip
        assert b"".join(words.token_bytes[token_id] for token_id in ids) == data


def test_a_text_that_readers_read_differently_is_not_strict() -> None:
    for text in ('{"a":1,"a":2}', "NaN", "[1", "01"):
        with pytest.raises(ValueError):
            strict_json(text)
    with pytest.raises(OverflowError):
        strict_json("1e999")
