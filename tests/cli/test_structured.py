"""The form of answers on the command line: held to, or refused before a model is loaded."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from headrace.cli.generate import CUT_OFF
from headrace.cli.main import cli
from headrace.cli.structured import schema_form, structured_outputs
from headrace.errors import ConfigError
from tests.tiny import write_tiny_gguf

SCHEMA = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"],
          "additionalProperties": False}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_gguf(tmp_path_factory.mktemp("model"), codec="Q8_0"))


def generated(model: str, *flags: str, status: int = 0, max_tokens: int | None = 40) -> Result:
    limit = [] if max_tokens is None else ["--max-tokens", str(max_tokens)]
    arguments = ["generate", model, "-p", "hi", *limit, "--threads", "1", *flags]
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert result.exit_code == status, result.output
    return result


def test_generate_holds_answers_to_a_schema(model: str, tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA), encoding="utf-8")
    read = json.loads(generated(model, "--schema", str(path), "--json").stdout)
    assert json.loads(read["text"])["a"] in ("x", "y")
    assert read["finish_reason"] == "stop"
    assert read["prompt"] == "hi"


def test_an_answer_of_a_form_is_printed_alone_for_programs(model: str) -> None:
    form = ("--schema", json.dumps(SCHEMA))
    assert json.loads(generated(model, *form).stdout)["a"] in ("x", "y")
    several = generated(model, *form, "-p", "ho").stdout.splitlines()
    assert [json.loads(line)["a"] in ("x", "y") for line in several] == [True, True]
    assert generated(model, max_tokens=2).stdout.startswith("hi"), "free text follows its prompt"


def test_generate_holds_answers_to_choices_and_grammars(model: str, tmp_path: Path) -> None:
    chosen = generated(model, "--choice", "yes", "--choice", "no").stdout
    assert chosen in ("yes\n", "no\n")
    path = tmp_path / "form.gbnf"
    path.write_text('root ::= "<" [01] ">"', encoding="utf-8")
    assert generated(model, "--grammar", str(path)).stdout in ("<0>\n", "<1>\n")
    assert generated(model, "--regex", "ab?c").stdout in ("abc\n", "ac\n")


def test_an_answer_that_is_cut_off_before_it_is_whole_is_noted(model: str) -> None:
    form = ("--regex", "ab{9}c")
    cut = generated(model, *form, status=CUT_OFF, max_tokens=2)
    assert cut.stdout == "ab\n"
    assert cut.stderr == "headrace: the answer was cut at --max-tokens 2: it is not whole\n"
    stopped = generated(model, *form, "--stop", "bb", status=CUT_OFF)
    assert stopped.stderr == "headrace: the answer was cut at --stop 'bb': it is not whole\n"
    several = generated(model, *form, "-p", "x", "--json", status=CUT_OFF, max_tokens=3)
    assert [json.loads(line)["finish_reason"] for line in several.stdout.splitlines()] == [
        "length", "length"
    ]  # fmt: skip
    assert "the answer of prompt 2 was cut at --max-tokens 3" in several.stderr
    full = generated(model, *form, "--max-model-len", "6", status=CUT_OFF, max_tokens=None)
    assert "tokens, where the context is full: it is not whole" in full.stderr
    assert not generated(model, max_tokens=2).stderr  # free text has no end that is missing


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"schema": "/absent.json"}, "--schema /absent.json: No such file"),
        ({"schema": '{"type": 5}'}, "--schema: "),
        ({"schema": "{"}, "--schema: is not JSON"),
        ({"schema": "[1]"}, r"--schema: \[1\] is not a schema; a schema is an object"),
        ({"regex": "("}, "--regex: cannot be compiled: "),
    ],
)
def test_a_form_that_is_wrong_is_named(values: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^{problem}"):
        structured_outputs(dict(values))


def test_an_answer_has_one_form() -> None:
    with pytest.raises(click.UsageError, match="--regex and --choice: an answer has one form"):
        structured_outputs({"regex": "a", "choice": ("b",)})


def test_what_is_not_typed_is_free_text() -> None:
    assert structured_outputs({"schema": None, "choice": ()}) is None
    assert schema_form(json.dumps(SCHEMA), "/schema").json == SCHEMA
