"""Prompts of the file in requests of every dialect, through a whole gateway."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headrace.config.yaml_file import read_yaml
from headrace.errors import ConfigError, RequestError
from headrace.gateway.building.prompts import prompts_of
from headrace.gateway.prompts.prompts import Prompts
from headrace.gateway.serving.entry import Entry
from headrace.gateway.settings.read import parse_settings
from headrace.protocol.json_object import JsonObject
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import answers, body_of
from tests.gateway.upstream.scripted import served

FILE = """
prompts:
  support:
    versions:
      1:
        messages: [{role: system, content: "You help {{name}}."}]
        model: chat
        parameters: {temperature: 0, max_tokens: 50}
        example: {name: Ada}
      2:
        messages:
          - {role: system, content: "You help {{ name }} with {{ topic | default('all') }}."}
          - {role: user, content: "Hi"}
          - {role: assistant, content: "Hello {{name}}!"}
    labels: {production: 1, staging: 2}
  many:
    versions:
      9: {messages: [{role: system, content: nine}]}
      10: {messages: [{role: system, content: ten}]}
  tested:
    versions:
      a: {messages: [{role: system, content: A}]}
      b: {messages: [{role: system, content: B}]}
    labels: {production: {a: 90, b: 10}}
"""


def prompts(text: str = FILE, folder: Path = Path()) -> Prompts:
    found = prompts_of(parse_settings(read_yaml(text, "f.yaml", once=True)[0], "f.yaml"), folder)
    assert found is not None
    return found


def apply(dialect: str, body: Any, key: str | None = None, text: str = FILE) -> tuple[Any, str]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    found = prompts(text).applied(dialect, JsonObject.read(raw), {}, key, "r")
    return found.body.body if isinstance(body, bytes) else json.loads(found.body.body), found.prompt


NAMED = {"id": "support", "variables": {"name": "Ada"}}


def test_production_is_taken_else_the_highest_version() -> None:
    assert apply("openai-chat", {"prompt": NAMED})[1] == "support@1"
    assert apply("openai-chat", {"prompt": {**NAMED, "label": "staging"}})[1] == "support@2"
    assert apply("openai-chat", {"prompt": {**NAMED, "version": "2"}})[1] == "support@2"
    assert apply("openai-chat", {"prompt": {**NAMED, "version": 2}})[1] == "support@2"
    assert apply("openai-chat", {"prompt": {"id": "many"}})[1] == "many@10"


def test_litellms_words() -> None:
    named = {"prompt_id": "support", "prompt_version": 2, "prompt_variables": {"name": "Ada"}}
    body, prompt = apply("openai-chat", named)
    assert prompt == "support@2" and "prompt_id" not in body and "prompt_variables" not in body
    assert body["messages"][0]["content"] == "You help Ada with all."
    labelled = {
        "prompt_id": "support",
        "prompt_label": "staging",
        "prompt_variables": {"name": "x"},
    }
    assert apply("openai-chat", labelled)[1] == "support@2"


def test_no_other_byte_of_a_body_changes() -> None:
    raw = (
        b'{ "x" : 1.0e2,"messages":[ {"role":"user", "content":"\\u00e4"} ] , "model":"chat",'
        b' "prompt":{"id":"support","variables":{"name":"A\\"da"}},"temperature":1}'
    )
    out, _ = apply("openai-chat", raw)
    assert out == (
        b'{ "x" : 1.0e2,"messages":[{"role":"system","content":"You help A\\"da."}, '
        b'{"role":"user", "content":"\\u00e4"} ] , "model":"chat","temperature":1,"max_tokens":50}'
    )


@pytest.mark.parametrize(
    ("dialect", "body", "wanted"),
    [
        ("anthropic", {"messages": [{"role": "user", "content": "x"}], "system": "Be brief."},
         {"system": "You help Ada with all.\n\nBe brief."}),
        ("anthropic", {"messages": [], "system": [{"type": "text", "text": "Be brief."}]},
         {"system": [{"type": "text", "text": "You help Ada with all."},
                     {"type": "text", "text": "Be brief."}]}),
        ("anthropic", {"messages": [{"role": "user", "content": "x"}]},
         {"system": "You help Ada with all.",
          "messages": [{"role": "user", "content": "Hi"},
                       {"role": "assistant", "content": "Hello Ada!"},
                       {"role": "user", "content": "x"}]}),
        ("openai-responses", {"input": "x", "instructions": "Be brief."},
         {"instructions": "You help Ada with all.\n\nBe brief.",
          "input": [{"role": "user", "content": "Hi"},
                    {"role": "assistant", "content": "Hello Ada!"},
                    {"role": "user", "content": "x"}]}),
        ("openai-responses", {"input": [{"role": "user", "content": "x"}]},
         {"instructions": "You help Ada with all.",
          "input": [{"role": "user", "content": "Hi"},
                    {"role": "assistant", "content": "Hello Ada!"},
                    {"role": "user", "content": "x"}]}),
        ("ollama", {}, {"messages": [{"role": "system", "content": "You help Ada with all."},
                                     {"role": "user", "content": "Hi"},
                                     {"role": "assistant", "content": "Hello Ada!"}]}),
    ],
)  # fmt: skip
def test_where_each_dialect_wants_it(
    dialect: str, body: dict[str, Any], wanted: dict[str, Any]
) -> None:
    out, _ = apply(dialect, {**body, "prompt": {**NAMED, "version": "2"}})
    assert {name: out[name] for name in wanted} == wanted and "prompt" not in out


def test_parameters_where_the_request_does_not_say() -> None:
    assert apply("openai-chat", {"prompt": NAMED})[0]["temperature"] == 0
    said = apply("openai-chat", {"prompt": NAMED, "max_completion_tokens": 7, "model": "own"})[0]
    assert "max_tokens" not in said and said["model"] == "own"
    assert apply("openai-responses", {"input": "x", "prompt": NAMED})[0]["max_output_tokens"] == 50
    out, _ = apply("ollama", {"prompt": NAMED, "options": {"temperature": 1, "seed": 3}})
    assert out["options"] == {"temperature": 1, "seed": 3, "num_predict": 50}
    assert "temperature" not in out and out["model"] == "chat"


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ({"id": "support"}, "prompt.variables lacks 'name'"),
        ({"id": "support", "version": "2", "variables": {"topic": "x"}}, "name"),
        ({**NAMED, "variables": {"name": "x", "nme": "y", "z": 1}}, "unknown variables 'nme', 'z'"),
        ({**NAMED, "version": "3"}, "no version '3'; there are 1, 2"),
        ({**NAMED, "label": "stagin"}, "staging"),
        ({**NAMED, "version": "1", "label": "staging"}, "give either version or label"),
        ({"id": "suport"}, "support"),
        ({"id": "support", "vars": {}}, "vars"),
        ({}, "id"),
    ],
)
def test_what_is_wrong_is_named(named: dict[str, Any], told: str) -> None:
    with pytest.raises(RequestError, match=told):
        apply("openai-chat", {"prompt": named})


def test_what_is_not_ours_stays_as_it_is() -> None:
    raw = (
        b'{"input": "x", "prompt": {"id": "pmpt_123", "variables": {"a": {"type": "input_image"}}}}'
    )
    assert apply("openai-responses", raw) == (raw, "")
    text = b'{"prompt": "Once upon a time"}'
    assert apply("openai-completions", text) == (text, "")
    assert apply("openai-chat", b'{"messages": []}') == (b'{"messages": []}', "")


def test_a_template_cannot_reach_out_or_run_away() -> None:
    for source in ("{{ ''.__class__.__mro__ }}", "{% for i in range(10000000) %}x{% endfor %}"):
        text = json.dumps({"prompts": {"p": {"versions": {"1": {
            "messages": [{"role": "user", "content": source}]}}}}})  # fmt: skip
        with pytest.raises(RequestError, match="template"):
            apply("openai-chat", {"prompt": {"id": "p"}}, text=text)


def test_a_variable_is_text_and_no_template() -> None:
    out, _ = apply("openai-chat", {"prompt": {"id": "support", "variables": {"name": "{{ 7*7 }}"}}})
    assert out["messages"][0]["content"] == "You help {{ 7*7 }}."


def test_a_user_keeps_its_version_and_weights_hold() -> None:
    found = prompts().by_name["tested"]
    drawn = [found.labelled(None, f"user {number}").name for number in range(2000)]
    assert drawn == [found.labelled(None, f"user {number}").name for number in range(2000)]
    assert 120 < Counter(drawn)["b"] < 280
    body = {"prompt": {"id": "tested"}, "user": "ada"}
    assert len({apply("openai-chat", body, key)[1] for key in ("k1", "k2", "k3")}) == 1


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("p: {versions: {1: {messages: [{role: user, content: '{{ x'}]}}}", "cannot be read"),
        ("p: {versions: {1: {messages: []}}}", "at least one"),
        ("p: {versions: {}}", "at least one"),
        ("p: {versions: {1: 'file:none.yaml'}}", "none.yaml"),
        ("p: {versions: {1: {messages: [{role: user, content: x}]}}, labels: {a: 2}}", "not a v"),
        ("p: {versions: {1: {messages: [{role: u, content: x}]}}}", "role"),
        ("p: {versions: {1: {messages: [{role: user, content: '{{a}}'}], example: {b: 1}}}}",
         "example: p@1: unknown variables"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_the_file_is_told(settings: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        prompts(f"prompts:\n  {settings}\n")


def test_files_and_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "prompts"
    folder.mkdir()
    two = "messages: [{role: system, content: 'two {{x}}'}]\nexample: {x: 1}\n"
    (folder / "two.yaml.txt").write_text(two)
    (folder / "other.yaml").write_text("versions: {2: 'file:two.yaml.txt'}\nlabels: {live: 2}\n")
    text = "prompts_folder: prompts\nprompts: {p: {versions: {2: 'file:prompts/two.yaml.txt'}}}\n"
    found = prompts(text, tmp_path)
    assert found.by_name["p"].version("2").said({"x": "y"})[0].text == "two y"
    assert found.by_name["other"].labelled("live", "").full_name == "other@2"
    (folder / "p.yaml").write_text("versions: {1: {messages: [{role: user, content: x}]}}\n")
    with pytest.raises(ConfigError, match="too"):
        prompts(text, tmp_path)


async def test_through_a_gateway_with_guardrails_that_see_what_was_rendered() -> None:
    entries: list[Entry] = []
    async with served(answers("Hello")) as provider:
        settings = {
            "providers": {"a": {"base_url": f"{provider.origin}/v1", "dialect": "openai-chat"}},
            "models": {"chat": {"targets": [{"model": "a/m"}]}},
            "guardrails": {"mail": {"kind": "pii", "find": ["email"], "on": "input",
                                    "action": "redact", "default": True}},
            **read_yaml(FILE, "f.yaml")[0].loaded,
        }  # fmt: skip
        built = gateway(settings, entries)
        body = {"prompt": {"id": "support", "variables": {"name": "ada@example.com"}}}
        told = await ask(built.app, {**body, "messages": [{"role": "user", "content": "Hi"}]})
        assert told.status == 200 and told.headers["x-headrace-prompt"] == "support@1"
        sent = body_of(provider.requests[0])
        assert sent["model"] == "m" and "prompt" not in sent and sent["temperature"] == 0
        assert [one["content"] for one in sent["messages"]] == ["You help [EMAIL].", "Hi"]
        told = await ask(built.app, {**body, "stream": True, "messages": []})
        assert told.headers["x-headrace-prompt"] == "support@1"
        told = await ask(built.app, {"prompt": {"id": "support"}, "messages": []})
        assert told.status == 400 and "name" in told.json["error"]["message"]
    assert entries[0].prompt == "support@1"
