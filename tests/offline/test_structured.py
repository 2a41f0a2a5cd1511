"""Structured output of LLM under vLLM's names: held to, or refused with the field's name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from headrace import LLM, SamplingParams, StructuredOutputsParams
from headrace.config.vllm.sampling_params import FIELDS_OF_REQUESTS
from headrace.errors import RequestError
from headrace.offline.structured import grammar_of
from headrace.structured.grammar import Grammar
from tests.tiny import write_tiny_hf

NUMBER = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    path = write_tiny_hf(tmp_path_factory.mktemp("structured"), logit_scale=4.0)
    return LLM(path, backend="reference", num_gpu_blocks_override=64)


def params(structured: StructuredOutputsParams | Mapping[str, Any]) -> SamplingParams:
    return SamplingParams(temperature=1, seed=4, max_tokens=24, structured_outputs=structured)


def is_number(text: str) -> bool:
    read = json.loads(text)
    return list(read) == ["n"] and 0 <= read["n"] <= 9


@pytest.mark.parametrize(
    ("fields", "holds"),
    [
        ({"json": NUMBER}, is_number),
        ({"json": json.dumps(NUMBER)}, is_number),
        ({"regex": "[ab]{3}"}, lambda text: len(text) == 3 and set(text) <= set("ab")),
        ({"choice": ("yes", "no")}, lambda text: text in ("yes", "no")),
        ({"grammar": 'root ::= "x" [01] "y"'}, lambda text: text in ("x0y", "x1y")),
        ({"grammar": 'start: "up" | "down"'}, lambda text: text in ("up", "down")),
    ],
)
def test_answers_are_of_the_form(
    llm: LLM, fields: dict[str, Any], holds: Callable[[str], bool]
) -> None:
    results = llm.generate(["a", "b"], params(StructuredOutputsParams(**fields)), n=2)
    for answer in [answer for result in results for answer in result.choices]:
        assert holds(answer.text), answer.text
        assert answer.finish_reason == "stop"
    assert llm.generate(["a", "b"], params(fields), n=2) == results
    assert "".join(d.text for d in llm.stream("a", params(fields))) == results[0].text


@pytest.mark.parametrize(
    ("structured", "problem"),
    [
        (StructuredOutputsParams(json=5), r"^structured_outputs\.json: 5 is not a schema"),
        (StructuredOutputsParams(regex=""), r"^structured_outputs\.regex is ''"),
        (StructuredOutputsParams(choice=["a", 1]), r"^structured_outputs\.choice\[1\] is 1"),
        (StructuredOutputsParams(), "^structured_outputs has nothing; give exactly one"),
        ({"regex": "a", "choice": ["a"]}, "has regex, choice; give exactly one"),
        ({"xml": "a"}, r"^structured_outputs\.xml: unknown field; fields are json, "),
        ({"json": {"a": np.zeros(2)}}, r"^structured_outputs\.json"),
        ("json", "it must be StructuredOutputsParams, a mapping or None"),
    ],
)
def test_what_is_wrong_is_refused_as_it_is_made(structured: Any, problem: str) -> None:
    with pytest.raises(RequestError, match=problem):
        SamplingParams(structured_outputs=structured)


def test_a_grammar_that_does_not_compile_is_refused_before_anything_runs(llm: LLM) -> None:
    before = llm.stats.generation_tokens
    wrong = params({"regex": "("})
    with pytest.raises(RequestError, match=r"^structured_outputs cannot be compiled") as caught:
        llm.generate(["a", "b"], wrong)
    assert caught.value.param == "structured_outputs"
    with pytest.raises(RequestError, match=r"^params\[1\]\.structured_outputs cannot be"):
        llm.generate(["a", "b"], [params({"regex": "a"}), wrong])
    with pytest.raises(RequestError, match="cannot be compiled"):
        next(iter(llm.stream("a", wrong)))
    assert llm.stats.generation_tokens == before
    assert llm.stats.num_running == llm.stats.num_waiting == 0


def test_one_form_is_given(llm: LLM) -> None:
    with pytest.raises(RequestError, match="structured_outputs, grammar: "):
        SamplingParams(structured_outputs={"regex": "a"}, grammar=Grammar("regex", "b"))


def test_the_older_name_of_vllm_leads_to_the_new_one() -> None:
    with pytest.raises(RequestError, match="here it is structured_outputs") as caught:
        SamplingParams(guided_decoding={"regex": "a"})
    assert caught.value.param == "guided_decoding"
    assert SamplingParams(guided_decoding=None) == SamplingParams()


@pytest.mark.parametrize("name", FIELDS_OF_REQUESTS)
def test_fields_of_requests_are_refused_with_what_to_write(name: str) -> None:
    given: dict[str, Any] = {name: {}}
    with pytest.raises(
        RequestError, match=rf"^SamplingParams\({name}=\.\.\.\): (here it|it) is "
    ) as caught:
        SamplingParams(**given)
    assert (caught.value.param, caught.value.code) == (name, "unsupported")
    given[name] = None
    assert SamplingParams(**given) == SamplingParams()
    assert name not in SamplingParams.__struct_fields__


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("json_schema", "here it is json$"),
        ("choises", "did you mean 'choice'\\?; fields are json, regex, "),
    ],
)
def test_a_form_of_another_name_is_refused_with_what_to_write(name: str, said: str) -> None:
    fields: dict[str, Any] = {name: {}}
    with pytest.raises(
        TypeError, match=rf"^StructuredOutputsParams\({name}=.*: unknown field.*{said}"
    ):
        StructuredOutputsParams(**fields)
    with pytest.raises(RequestError, match=rf"^structured_outputs\.{name}: unknown field.*{said}"):
        SamplingParams(structured_outputs=fields)
    form: Any = StructuredOutputsParams
    with pytest.raises(TypeError, match=r"takes fields by name: StructuredOutputsParams\(json="):
        form({})


def test_objects_are_closed_where_the_schema_names_no_additional_properties() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    is_open, closed, said = (
        grammar_of(StructuredOutputsParams(**form), None)
        for form in (
            {"json": schema},
            {"json": schema, "disable_additional_properties": True},
            {"json": schema | {"additionalProperties": False}},
        )
    )
    assert closed == said != is_open


def test_a_class_of_pydantic_is_refused_with_the_way_to_its_schema() -> None:
    pydantic = pytest.importorskip("pydantic")
    person = pydantic.create_model("Person", name=(str, ...))
    with pytest.raises(
        RequestError,
        match=r"is the class Person; give its schema: Person\.model_.*, and disable_add",
    ):
        params({"json": person})
    assert params({"json": person.model_json_schema()})
