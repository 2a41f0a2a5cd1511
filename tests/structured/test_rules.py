"""A rule without a text is refused by its name, as a judge of our own finds it; no other is."""

from __future__ import annotations

import random
import time

import pytest

from headrace.errors import RequestError
from headrace.structured.gbnf import lark_of
from headrace.structured.request import grammar_of
from headrace.structured.rules import check_rules
from headrace.structured.validity import validate
from tools.structured import random_grammars
from tools.structured.gbnf import Gbnf

ENDLESS = [
    ('root ::= "a" root', "root"),
    ("root ::= root", "root"),
    ('root ::= "a" x\nx ::= x | y\ny ::= "b" x', "x"),
    # What may be omitted may also be begun.
    ('root ::= "a" x?\nx ::= "b" x', "x"),
    ('root ::= "a" | "b" (x | "c" x)\nx ::= x{2,3}', "x"),
    # Found by the fuzzer, seeds 78 and 991: answers were stuck behind their first characters.
    ('root ::= "\\\\"{2} r0\nr0 ::= r0 "\\\\\\u00e9" "0"\nr1 ::= "0"* [a-c]? | (r1){1,3}', "r0"),
    ('root ::= (("\\x00" "\\x41" | root) "\\x00" r0 | ([.&~] | r0 | [#]+ [^a-b])) | "a"{1,}\n'
     "r0 ::= r0{1,}", "r0"),
]  # fmt: skip
ENDING = [
    'root ::= "a" root | "b"',
    'root ::= "a" root?',
    'root ::= ("a" root)* "b"',
    'root ::= x{0,3} "b"\nx ::= "(" root ")"',
    'root ::= "a" # x ::= x\n',
    'root ::= "x ::= x" [|(]\nx ::= x',  # which no answer comes into
]


@pytest.mark.parametrize(("text", "rule"), ENDLESS)
@pytest.mark.parametrize("field", ["grammar", "structural_tag"])
def test_a_rule_without_a_text_is_refused_by_name(text: str, rule: str, field: str) -> None:
    fields = {"grammar": text}
    param = "grammar"
    if field == "structural_tag":
        part = {"type": "grammar", "grammar": text}
        fields = {"response_format": {"type": "structural_tag", "format": part}}
        param = "response_format.format.grammar"
    with pytest.raises(RequestError, match=f"no text belongs to the rule '{rule}', ") as refused:
        grammar_of(fields)
    assert refused.value.param == param
    assert refused.value.code == "invalid_grammar"


@pytest.mark.parametrize("text", ENDING)
def test_a_rule_that_may_end_is_taken(text: str) -> None:
    grammar = grammar_of({"grammar": text})
    assert grammar is not None
    validate(grammar)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("start: x\nx: x | /a/ x // | /a/", "x"),
        ('start: "a" [x]\nx.2: "b" x', "x"),
        ("start: x\nx: (x | B)~1..2\nB: /b/", ""),  # not read: it may be anything
        ('start[lazy]: "a" x* B\nx: ("b" x)? "c"\nB: /x: x/ & /(?s:.*)/', ""),
        ('start: "a"\n    | x\n\nx: x  "# x:"i\n\n%ignore / /', "x"),
        ("start: other", ""),  # an error that compiling finds
        ("start: @other x\nx: ) x (", ""),
    ],
)
def test_lark_is_read_as_far_as_it_is_known(text: str, rule: str) -> None:
    if not rule:
        check_rules(text, "grammar")
        return
    with pytest.raises(RequestError, match=f"the rule '{rule}'"):
        check_rules(text, "grammar")


def test_rules_without_a_text_are_those_of_the_judge() -> None:
    outcomes = []
    for seed in range(300):
        text = random_grammars.gbnf(random.Random(seed))
        try:
            lark = lark_of(text, "grammar")
        except RequestError:
            continue
        found = False
        try:
            check_rules(lark, "grammar")
        except RequestError:
            found = True
        assert found == _has_a_dead_end(Gbnf(text)), text
        outcomes.append(found)
    assert outcomes.count(True) > 10
    assert outcomes.count(False) > 100


def test_a_large_grammar_takes_time_in_proportion() -> None:
    rules = [f'r{index}: "a" (r{index + 1} | "b" r{index + 1})' for index in range(1500)]
    begun_s = time.process_time()
    check_rules("\n".join(("start: r0", *rules, 'r1500: "c"')), "grammar")
    with pytest.raises(RequestError, match="'start'"):
        check_rules("\n".join(("start: r0", *rules, "r1500: start")), "grammar")
    check_rules("start: " + "(" * 20_000 + '"a"' + ")" * 20_000, "grammar")
    assert time.process_time() - begun_s < 1


def _has_a_dead_end(judge: Gbnf) -> bool:
    """Whether a rule that the first one comes to has no text."""
    written: set[str] = set()
    for _ in judge.rules:
        for name, ways in judge.rules.items():
            if any(all(p in written for p in way if isinstance(p, str)) for way in ways):
                written.add(name)
    reached = ["root"]
    for name in reached:  # grows meanwhile
        parts = (part for way in judge.rules[name] for part in way if isinstance(part, str))
        reached += [part for part in dict.fromkeys(parts) if part not in reached]
    return not written.issuperset(reached)
