"""Grammars over tokens: what they accept, how forced text is cut into tokens, what is refused."""

from __future__ import annotations

import json
import os
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from headrace.engine.grammars.vocabulary import vocabulary_maker
from headrace.errors import RequestError
from headrace.structured.compile import (
    GrammarTokenizer,
    _AsLlguidance,
    compile_grammar,
)
from headrace.structured.composition import Composition
from headrace.structured.grammar import Grammar
from headrace.structured.limits import DEFAULT, depth_of
from headrace.structured.validity import validate
from headrace.structured.vocabulary import Vocabulary
from headrace.weights.tokenizer.data import TokenizerData
from tests.text import assets, vocabularies

KINDS = {
    "byte_level": vocabularies.byte_level,
    "sentencepiece": vocabularies.sentencepiece,
    "text_bpe": vocabularies.text_bpe,
}


@cache
def vocabulary(kind: str) -> Vocabulary:
    arrays = KINDS[kind]()
    make = vocabulary_maker(TokenizerData("gguf", gguf=arrays), len(arrays["tokens"]))
    assert make is not None
    return make()


@cache
def tokenizer(kind: str) -> GrammarTokenizer:
    return GrammarTokenizer(vocabulary(kind))


def allowed(kind: str, grammar: Grammar, token_ids: list[int]) -> set[int]:
    """The ids that may follow, the end of the grammar among them as one behind all others."""
    matcher = compile_grammar(grammar, tokenizer(kind)).matcher()
    assert matcher.consume_tokens(token_ids)
    words = np.zeros(tokenizer(kind).end_id // 32 + 1, np.uint32)
    matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
    assert not matcher.is_error(), matcher.get_error()
    return set(np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")).tolist())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text", ["hello world", '{"hello": "held é"}', "a  ab\nhell", "he\n\n\nll"]
)
def test_forced_text_is_cut_as_the_models_tokenizer_cuts_it(kind: str, text: str) -> None:
    grammar = Grammar("choice", json.dumps([text]))
    expected = vocabulary(kind).ids_of(text)
    pieces = [vocabulary(kind).token_bytes[token_id] for token_id in expected]
    assert b"".join(pieces) == text.encode()
    written: list[int] = []
    while (ids := allowed(kind, grammar, written)) != {tokenizer(kind).end_id}:
        assert len(ids) == 1, "more than one way to write forced text"
        written += ids
    assert written == expected


def test_text_never_is_spelled_with_a_special_token() -> None:
    arrays = vocabularies.byte_level()
    special = arrays["tokens"].index("<|end|>")
    everything = allowed("byte_level", Grammar("regex", r"(.|\n)*"), [])
    assert special not in everything and arrays["bos_token_id"] not in everything
    assert arrays["tokens"].index("<think>") in everything, "a user-defined token is text"
    written = vocabulary("byte_level").ids_of("<|end|>")
    assert special not in written
    pieces = [vocabulary("byte_level").token_bytes[token_id] for token_id in written]
    assert b"".join(pieces) == b"<|end|>"


@pytest.mark.parametrize(
    ("grammar", "valid", "invalid"),
    [
        (Grammar("json_schema", '{"type": "integer"}'), ["12", "-3"], ["1.5", "a", "012"]),
        (
            Grammar("json_schema", '{"properties": {"a": {"type": "boolean"}}, "required": ["a"], '
                    '"additionalProperties": false, "type": "object"}'),
            ['{"a":true}'], ['{"a": true}', "{}", '{"a":1}'],
        ),
        (Grammar("json_schema", "true"), ['{"a":[1,null]}', '"x"'], ["{", "nul"]),
        (Grammar("regex", "a+b|c"), ["aab", "c"], ["ab c", "cb", "b"]),
        (Grammar("choice", '["yes", "yes please", "né\\n"]'), ["yes", "yes please", "né\n"],
         ["ye", "no", "yes pleas"]),
        (Grammar("lark", 'start: "x" start | "y"'), ["y", "xxy"], ["x", "yx"]),
    ],
)  # fmt: skip
def test_every_kind_accepts_its_texts_and_no_others(
    grammar: Grammar, valid: list[str], invalid: list[str]
) -> None:
    validate(grammar)
    compiled = compile_grammar(grammar, tokenizer("byte_level"))
    for text in [*valid, *invalid]:
        matcher = compiled.matcher()
        ids = vocabulary("byte_level").ids_of(text)
        taken = matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()
        assert taken == (text in valid), text


LITERAL = DEFAULT.literal_bytes
LENIENT = '{"type": "array", "uniqueItems": true, "x-guidance": {"lenient": true}}'
REFUSED = [
    (Grammar("json_schema", "{"), "invalid_grammar"),
    (Grammar("json_schema", "[]"), "invalid_grammar"),
    (Grammar("json_schema", '{"type": "nothing"}'), "invalid_grammar"),
    (Grammar("json_schema", LENIENT), "invalid_grammar"),
    (Grammar("regex", "(a"), "invalid_grammar"),
    (Grammar("regex", "(?=a)b"), "invalid_grammar"),
    (Grammar("lark", "start: other"), "invalid_grammar"),
    (Grammar("choice", "[]"), "invalid_grammar"),
    (Grammar("choice", '["a", 1]'), "invalid_grammar"),
    (Grammar("choice", '{"a": 1}'), "invalid_grammar"),
    (Grammar("json_schema", "[" * 100_000), "grammar_too_large"),
    (Grammar("json_schema", '{"not": ' * 101 + "{}" + "}" * 101), "grammar_too_large"),
    (Grammar("regex", "(" * 101 + ")" * 101), "grammar_too_large"),
    (Grammar("lark", "start: " + "(" * 101 + '"a"' + ")" * 101), "grammar_too_large"),
    (Grammar("choice", json.dumps(["x" * DEFAULT.text_bytes])), "grammar_too_large"),
    (Grammar("choice", json.dumps(["a", "x" * (LITERAL + 1)])), "grammar_too_large"),
    (Grammar("choice", json.dumps(["é" * (LITERAL // 2 + 1)])), "grammar_too_large"),
    (Grammar("regex", "a|" + "x" * (LITERAL + 1)), "grammar_too_large"),
    (Grammar("regex", f"[ab](xy){{{LITERAL // 2 + 1}}}"), "grammar_too_large"),
    (Grammar("lark", f'start: "{"x" * (LITERAL + 1)}"'), "grammar_too_large"),
    (Grammar("lark", f"start: /{'x' * (LITERAL + 1)}/"), "grammar_too_large"),
    (Grammar("composed", json.dumps({"grammars": [
        {"lark_grammar": f'start: "{"x" * (LITERAL + 1)}"'}]})), "grammar_too_large"),
]  # fmt: skip


@pytest.mark.parametrize(("grammar", "code"), REFUSED)
def test_what_cannot_be_compiled_is_refused_by_its_code(grammar: Grammar, code: str) -> None:
    with pytest.raises(RequestError, match=r"structured_outputs\.json") as refused:
        validate(grammar, param="structured_outputs.json")
    assert refused.value.code == code
    assert str(refused.value.param).startswith("structured_outputs.json")
    assert len(str(refused.value)) < 600
    with pytest.raises(RequestError):
        compile_grammar(grammar, tokenizer("byte_level"))


def schema_of(**fields: object) -> Grammar:
    return Grammar("json_schema", json.dumps(fields))


HOSTILE = {
    "2^31 repeats": Grammar("regex", "a{2147483647}"),
    "nested repeats": Grammar("regex", "((((a{1,99}){1,99}){1,99}){1,99}){1,99}"),
    "catastrophic": Grammar("regex", "(a+)+(a+)+(a|aa)*[^a]{500}(a?){60}a{60}"),
    "counted alternatives": Grammar("regex", "|".join(f"x{i}.{{0,90}}" for i in range(90))),
    "2^31 items": schema_of(type="array", minItems=2**31, items={"type": "integer"}),
    "2^31 characters": schema_of(type="string", minLength=2**31),
    "self reference": schema_of(**{"$ref": "#"}),
    "only references": Grammar("json_schema", json.dumps(
        {"$defs": {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(12_000)} | {"a12000": {}},
         "$ref": "#/$defs/a0"})),
    "large enum": schema_of(enum=[f"value {i}" for i in range(20_000)]),
    "many properties": schema_of(type="object", properties={f"p{i}": {} for i in range(2000)}),
    "more properties": schema_of(type="object", properties={f"p{i}": {} for i in range(20_000)}),
    "large choice": Grammar("choice", json.dumps([f"value {i}" for i in range(20_000)])),
    "rules in a chain": Grammar("lark", "start: a0\n" + "".join(
        f"a{i}: a{i + 1}\n" for i in range(40_000)) + 'a40000: "x"\n'),
    "rules that double": Grammar("lark", "start: a0\n" + "".join(
        f"a{i}: a{i + 1} a{i + 1}\n" for i in range(60)) + 'a60: "x"\n'),
    "endless nothing": Grammar("lark", 'start: start start | ""'),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_grammar_is_refused_or_compiles_in_bounded_time(name: str) -> None:
    begun_s = time.process_time()
    try:
        compiled = compile_grammar(HOSTILE[name], tokenizer("byte_level"))
        words = np.zeros(tokenizer("byte_level").end_id // 32 + 1, np.uint32)
        compiled.matcher().unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
    except RequestError as error:
        assert error.code in ("invalid_grammar", "grammar_too_large")
    assert time.process_time() - begun_s < 3


def test_texts_up_to_the_limit_are_accepted_and_refused_ones_say_what_it_is() -> None:
    text = "x" * LITERAL
    for grammar in (
        Grammar("choice", json.dumps([text])),
        Grammar("regex", text),
        Grammar("regex", f"({text[:-9]}|[ab]{{{LITERAL * 2}}})a"),
        Grammar("lark", f'start: "{text[2:]}" /{text}/'),
    ):
        DEFAULT.check(grammar)
    with pytest.raises(RequestError) as refused:
        validate(Grammar("regex", f"{text}x"), param="guided_regex")
    assert refused.value.param == "guided_regex"
    for part in ("guided_regex", str(LITERAL + 1), f"at most {LITERAL}", "Shorten"):
        assert part in str(refused.value)


def test_rules_that_a_client_wrote_have_less_the_more_symbols_they_have() -> None:
    def limits_of(grammar: Grammar) -> tuple[int, int]:
        found = DEFAULT.of_parser(grammar)
        return found.step_max_items, found.max_items_in_row

    few = Grammar("lark", 'start: "a" start | "b" // "c" "d"')
    many = Grammar("lark", "start: " + " | ".join(f"c{i}" for i in range(600)))
    assert limits_of(few) == (50_000, 256)
    assert limits_of(many) == (2000, 601)
    assert limits_of(Grammar("json_schema", "{}")) == (20_000, 2000)
    rules = Composition({})
    assert limits_of(rules.grammar(rules.part(Grammar("regex", "a")))) == (20_000, 2000)
    rules = Composition({})
    assert limits_of(rules.grammar(f'"x" {rules.part(many)}')) == (2000, 601)


def test_brackets_in_texts_are_not_depth() -> None:
    assert depth_of(Grammar("regex", r"\((a[(](b))\)")) == 2
    assert depth_of(Grammar("lark", r'start: ("(((" | /\(\[/) "a\"[["')) == 1
    assert depth_of(Grammar("choice", '["[[[["]')) == 1
    assert depth_of(Grammar("json_schema", '{"a": [{"b": "[["}]}')) == 3


def test_a_tokenizer_that_writes_other_bytes_gives_the_longest_matches() -> None:
    words = Vocabulary([b"a", b"ab", b" ", b"<s>"], [3], lambda text: [2])
    assert words.ids_of("abaab") == [1, 0, 1]
    assert words.ids_of("a?") == [0], "a byte without a token ends it"

    def spaced(text: str) -> list[int]:
        if text[0] == "\x02":
            return [3, 2, *[0] * (len(text) - 1)]
        return [1, *[0] * (len(text) - 1)]

    assert Vocabulary([b"a", b" a", b"\x02", b" "], [], spaced).ids_of("aa") == [0, 0]

    def fails(text: str) -> list[int]:
        raise ValueError(text)

    assert Vocabulary([b"a"], [], fails).ids_of("aa") == [0, 0]


def test_matchers_of_one_grammar_share_nothing() -> None:
    compiled = compile_grammar(Grammar("regex", "ab|cd"), tokenizer("byte_level"))
    first, second = compiled.matcher(), compiled.matcher()
    assert first.consume_tokens(vocabulary("byte_level").ids_of("a"))
    assert second.consume_tokens(vocabulary("byte_level").ids_of("cd"))
    assert first.consume_tokens(vocabulary("byte_level").ids_of("b"))
    assert first.is_accepting() and second.is_accepting()


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar("lark", "start: start"),
        Grammar("json_schema", '{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}'),
    ],
)
def test_a_grammar_without_a_text_is_refused_before_the_first_token(grammar: Grammar) -> None:
    with pytest.raises(RequestError, match="no text belongs to it"):
        validate(grammar)


@pytest.mark.parametrize(
    ("inner", "where"),
    [
        ({"oneOf": [{"minimum": 1}, {"maximum": 2}]}, "#/properties/a~1b/items/oneOf "),
        ({"maxProperties": 1, "properties": {"c": {}}}, "#/properties/a~1b/items/maxProperties "),
        ({"patternProperties": {"a": {}, "b": {}}}, "#/properties/a~1b/items/patternProperties "),
        ({"allOf": [{"$ref": "#/$defs/d"}]}, "#/$defs/d/oneOf "),
    ],
)
def test_what_llguidance_cannot_hold_is_refused_with_its_pointer(
    inner: dict[str, object], where: str
) -> None:
    harmless = {"oneOf": [{"type": "null"}, {"type": "integer"}]}
    schema = {
        "properties": {"a/b": {"items": inner}, "c": harmless},
        "$defs": {"d": {"oneOf": [{"type": "string"}, {"minLength": 1}]}},
    }
    with pytest.raises(RequestError) as refused:
        validate(Grammar("json_schema", json.dumps(schema)), param="guided_json")
    assert refused.value.code == "unsupported_schema"
    assert where in str(refused.value)


LONG_TEXTS = {
    "letters": "qwertyuiopasdfghjkl" * 160,
    "one letter": "a" * 3000,
    "digits": "3141592653589793" * 190,
    "zeros": "0" * 3000,
    "spaces": " " * 3000,
    "Han": "的一是不了人我在有他这中大来上国" * 190,
    "mixed": "word the12\n  é中==aXy34 " * 130,
}


@pytest.mark.long
@pytest.mark.parametrize("name", ["gpt-2", "llama-spm", "gpt-neox json", "gpt-4o", "llama3 ranks"])
def test_a_long_text_begins_with_the_ids_that_the_whole_text_has(
    name: str, shared_assets: Path
) -> None:
    model = assets.vocabulary(shared_assets, name)
    texts = LONG_TEXTS.values()
    ids = [each for text in texts for each in model.encode_continuation(f"\x02 {text}")]
    ids += [each for text in texts for each in model.encode_continuation(text)]
    num_tokens = max(ids) + 1
    pieces = [model.token_bytes(token_id) for token_id in range(num_tokens)]
    words = Vocabulary(pieces, [], model.encode_continuation)
    cut = _AsLlguidance(words, num_tokens)
    for text in texts:
        begun = cut(text)
        assert begun and begun == words.ids_of(text)[: len(begun)]


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar("lark", "start: rate_limit"),
        Grammar("lark", "start: <nest>"),
        Grammar("lark", 'start: "too many states: " too_many_items'),
        Grammar("regex", "(honest"),
        Grammar("regex", "(too many states: "),
        Grammar("regex", '("fuel exhausted"'),
    ],
)
def test_what_a_grammar_says_of_limits_does_not_make_it_too_large(grammar: Grammar) -> None:
    with pytest.raises(RequestError) as refused:
        validate(grammar)
    assert refused.value.code == "invalid_grammar"


def test_errors_hold_no_backtrace_unless_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's RUST_BACKTRACE would have each mask take 50 us more."""
    for stated, expected in ((None, "0"), ("1", "1")):
        if stated is None:
            monkeypatch.delenv("RUST_LIB_BACKTRACE", raising=False)
        else:
            monkeypatch.setenv("RUST_LIB_BACKTRACE", stated)
        GrammarTokenizer(vocabulary("byte_level"))
        assert os.environ["RUST_LIB_BACKTRACE"] == expected
