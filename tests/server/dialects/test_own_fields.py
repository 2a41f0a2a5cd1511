"""Fields of this server's own that clients of other dialects add: none is dropped in silence."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.protocol.openai.structured import StructuredFields
from tests.server.dialects.conftest import Agent, message, turn
from tests.server.mock_engine import says

FORMS: dict[str, Any] = {
    "response_format": {"type": "json_object"},
    "structured_outputs": {"regex": "a+"},
    "guided_json": {"type": "object"},
    "guided_regex": "a+",
    "guided_choice": ["a"],
    "guided_grammar": 'root ::= "a"',
    "regex": "a+",
    "ebnf": 'root ::= "a"',
    "grammar": 'root ::= "a"',
    "json_schema": {"type": "object"},
}


def test_every_form_has_a_case() -> None:
    beside = {"guided_whitespace_pattern"}  # with guided_json
    assert FORMS.keys() | beside == set(StructuredFields.__struct_fields__)


@pytest.mark.parametrize("name", FORMS)
def test_a_form_under_its_name_in_chat_completions_holds_the_answer(
    agent: Agent, name: str
) -> None:
    running = agent(says("a"))
    for path, body in (("/v1/messages", message()), ("/api/chat", turn(stream=False))):
        running.client.post(path, json={**body, name: FORMS[name]})
        assert running.engine.submitted[-1].params.grammar is not None, path


def test_objects_are_closed_beside_a_schema_in_place_of_a_dialects_own_field(agent: Agent) -> None:
    running = agent(says("a"))
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    held = {"json": schema, "disable_additional_properties": True}
    for path, body in (("/v1/messages", message()), ("/api/chat", turn(stream=False))):
        running.client.post(path, json={**body, "structured_outputs": held})
    running.client.post("/api/chat", json={**turn(stream=False), "format": schema})
    closed = {**schema, "additionalProperties": False}
    running.client.post("/api/chat", json={**turn(stream=False), "format": closed})
    first, second, is_open, said = (each.params.grammar for each in running.engine.submitted)
    assert first == second == said != is_open


@pytest.mark.parametrize(
    ("name", "value", "harmless"),
    [("best_of", 2, 1), ("use_beam_search", True, False), ("mirostat", 2, 0)],
)
def test_what_chat_completions_refuses_by_name_is_refused_here_too(
    agent: Agent, name: str, value: Any, harmless: Any
) -> None:
    running = agent(says("a"))
    for path, body in (("/v1/messages", message()), ("/api/chat", turn(stream=False))):
        refused = running.client.post(path, json={**body, name: value})
        assert (refused.status_code, name in refused.text) == (400, True), path
        taken = running.client.post(path, json={**body, name: harmless})
        assert (taken.status_code, taken.headers.get("x-ignored-params")) == (200, None), path
