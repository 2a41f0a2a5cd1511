"""Anthropic's Messages API on the server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anthropic
import pytest

from headrace.config import ServerConfig
from tests.server.conftest import MODEL, Running
from tests.server.dialects.conftest import CALLS, SAYS, SCHEMA, THINKS, Agent, message, prompt_of
from tests.server.mock_engine import MAX_MODEL_LEN, MockEngine, says

Start = Callable[..., Running]

TOOL = {"name": "look", "description": "Looks.", "input_schema": SCHEMA}
BILLING = "x-anthropic-billing-header: cc_version=2.1.100.7b4; cc_entrypoint=cli; cch={};"


def client(running: Running) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=running.url, api_key="none", max_retries=0)


def prompt(agent: Agent, **fields: Any) -> str:
    """The prompt that a body becomes."""
    running = agent(says("ok"))
    reply = running.post("/v1/messages", message(**fields))
    assert reply.status_code == 200, reply.text
    return prompt_of(running)


def test_a_message_is_answered_whole(start: Start) -> None:
    running = start(MockEngine(says("hello", cached_tokens=3)))
    reply = running.post("/v1/messages", message())
    assert reply.status_code == 200, reply.text
    told = reply.json()
    assert told["id"].startswith("msg_")
    assert told["content"] == [{"type": "text", "text": "hello"}]
    assert (told["stop_reason"], told["stop_sequence"]) == ("end_turn", None)
    usage = told["usage"]
    assert usage["input_tokens"] + 3 == len(running.engine.submitted[0].prompt_token_ids)
    assert (usage["cache_read_input_tokens"], usage["output_tokens"]) == (3, 6)
    assert reply.headers["request-id"] == reply.headers["x-request-id"]


def test_thoughts_text_and_a_call_are_blocks(agent: Agent) -> None:
    running = agent(says(THINKS + SAYS + CALLS))
    told = client(running).messages.create(**message(tools=[TOOL]))
    thought, text, call = told.content
    assert thought.type == "thinking" and thought.thinking == "hm, é" and thought.signature
    assert text.type == "text" and text.text.strip() == SAYS.strip()
    assert call.type == "tool_use" and call.name == "look"
    assert call.input == {"city": "Köln", "n": [1, 2]}
    assert told.stop_reason == "tool_use"
    assert told.usage.output_tokens == len((THINKS + SAYS + CALLS).encode()) + 1
    details = running.post("/v1/messages", message(tools=[TOOL])).json()["usage"]
    assert 0 < details["output_tokens_details"]["thinking_tokens"] < details["output_tokens"]


@pytest.mark.parametrize("cut", [1, 3, 7, 1000])
def test_the_package_reads_the_same_of_a_stream(agent: Agent, cut: int) -> None:
    running = agent(says(THINKS + SAYS + CALLS, cut=cut, cached_tokens=5))
    whole = client(running).messages.create(**message(tools=[TOOL])).to_dict()
    with client(running).messages.stream(**message(tools=[TOOL])) as stream:
        streamed = stream.get_final_message().to_dict()
    for told in (whole, streamed):
        told.pop("id")
        told.pop("stop_details", None)  # the package's own
        for block in told["content"]:
            block.pop("id", None)
            block.pop("caller", None)
    assert streamed == whole


def test_events_of_a_stream(agent: Agent) -> None:
    running = agent(says(CALLS, cut=5))
    text = running.post("/v1/messages", message(stream=True, tools=[TOOL])).text
    events = [one.splitlines() for one in text.strip().split("\n\n")]
    names = [name.removeprefix("event: ") for name, _ in events]
    data = [json.loads(line.removeprefix("data: ")) for _, line in events]
    assert names == [one["type"] for one in data]
    assert names[0] == "message_start" and names[-2:] == ["message_delta", "message_stop"]
    pieces = [one["delta"] for one in data if one["type"] == "content_block_delta"]
    assert {piece["type"] for piece in pieces} == {"input_json_delta"}
    joined = "".join(piece["partial_json"] for piece in pieces)
    assert json.loads(joined) == {"city": "Köln", "n": [1, 2]} and len(pieces) > 2
    assert data[-2]["delta"]["stop_reason"] == "tool_use"


def test_thoughts_come_back_to_the_template_and_so_do_results(agent: Agent) -> None:
    running = agent(says(THINKS + SAYS + CALLS))
    first = client(running).messages.create(**message(tools=[TOOL]))
    call = first.content[-1]
    assert call.type == "tool_use"
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sun", "is_error": False}
    turns: Any = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [block.to_dict() for block in first.content]},
        {"role": "user", "content": [result, {"type": "text", "text": "and?"}]},
    ]
    client(running).messages.create(**message(tools=[TOOL], messages=turns))
    call_text = f'[{call.id}:look{{"city": "K\\u00f6ln", "n": [1, 2]}}]'
    said = prompt_of(running)
    assert f"<assistant>(hm, é){first.content[1].text}" in said
    assert call_text in said or call_text.replace("\\u00f6", "ö") in said
    assert f"<tool>sun@{call.id}<user>and?<assistant>" in said


def test_thoughts_that_are_not_shown_come_back_all_the_same(agent: Agent) -> None:
    running = agent(says(THINKS + "yes", cut=2))
    thinking = {"type": "adaptive", "display": "omitted"}
    with client(running).messages.stream(**message(thinking=thinking)) as stream:
        blocks = [block.to_dict() for block in stream.get_final_message().content]
    assert blocks[0]["thinking"] == "" and blocks[0]["signature"]
    whole = running.post("/v1/messages", message(thinking=thinking)).json()["content"]
    assert whole == blocks
    turns = [{"role": "user", "content": "x"}, {"role": "assistant", "content": blocks}]
    running.post("/v1/messages", message(messages=[*turns, {"role": "user", "content": "y"}]))
    assert "<assistant>(hm, é)yes<user>y" in prompt_of(running)


def test_redacted_and_foreign_thoughts_are_left_out(agent: Agent) -> None:
    blocks = [
        {"type": "redacted_thinking", "data": "EroB"},
        {"type": "thinking", "thinking": "seen", "signature": "EqQBsigned"},
        {"type": "text", "text": "a"},
    ]
    turns = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": blocks},
        {"role": "user", "content": "y"},
    ]
    assert "<assistant>(seen)a<user>y" in prompt(agent, messages=turns)


def test_system_text_keeps_its_place_and_loses_the_billing_line(agent: Agent) -> None:
    mark = {"type": "ephemeral", "ttl": "1h"}
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": mark}]},
        {"role": "system", "content": "late"},
        {"role": "user", "content": "b"},
    ]
    said = set()
    for checksum in ("eb6c6", "00f1a"):
        system = [
            {"type": "text", "text": BILLING.format(checksum)},
            {"type": "text", "text": "You help.", "cache_control": mark},
            {"type": "text", "text": "Today."},
        ]
        said.add(prompt(agent, system=system, messages=turns))
        line = BILLING.format(checksum) + "\nYou help.\n\nToday."
        said.add(prompt(agent, system=line, messages=turns))
    assert said == {"<system>You help.\n\nToday.<user>a<system>late<user>b<assistant>"}


def test_a_user_may_write_about_the_billing_line(agent: Agent) -> None:
    text = BILLING.format("1") + "\nwhat is this?"
    turns = [{"role": "user", "content": text}]
    assert prompt(agent, messages=turns, system=f"a\n{text}") == (
        f"<system>a\n{text}<user>{text}<assistant>"
    )


@pytest.mark.parametrize(
    ("fields", "end"),
    [
        ({}, "<assistant>"),
        ({"thinking": {"type": "enabled", "budget_tokens": 50}}, "<assistant>|True"),
        ({"thinking": {"type": "adaptive"}}, "<assistant>|True"),
        ({"thinking": {"type": "disabled"}}, "<assistant>|False"),
        ({"output_config": {"effort": "high"}}, "<assistant>|True"),
    ],
)
def test_thinking(agent: Agent, fields: dict[str, Any], end: str) -> None:
    assert prompt(agent, **fields).endswith(end)


def test_an_answer_that_is_begun_is_continued(agent: Agent) -> None:
    turns = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "It is"}]
    assert prompt(agent, messages=turns) == "<user>x<assistant>It is"


def test_a_limit_beyond_the_context_is_cut(start: Start) -> None:
    running = start(MockEngine(says("abc", ends=False)))
    told = running.post("/v1/messages", message(max_tokens=32_000)).json()
    submit = running.engine.submitted[0]
    assert submit.params.max_tokens == MAX_MODEL_LEN - len(submit.prompt_token_ids)
    assert told["usage"]["output_tokens"] == 3


def test_reasons_of_the_end(start: Start) -> None:
    running = start(MockEngine(says("abcdef")))
    cut = running.post("/v1/messages", message(max_tokens=2)).json()
    assert (cut["stop_reason"], cut["content"][0]["text"]) == ("max_tokens", "ab")
    stopped = running.post("/v1/messages", message(stop_sequences=["zz", "cd"])).json()
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", "cd")
    assert stopped["content"][0]["text"] == "ab"


def test_sampling_reaches_the_engine(start: Start) -> None:
    running = start(MockEngine(says("a")))
    reply = running.post(
        "/v1/messages",
        message(temperature=0.25, top_p=0.5, top_k=7, min_tokens=1, cache_salt="s"),
    )
    assert "x-ignored-params" not in reply.headers
    running.post("/v1/messages", message(mcp_servers=[])).raise_for_status()
    submit = running.engine.submitted[0]
    params = submit.params
    assert (params.temperature, params.top_p, params.top_k) == (0.25, 0.5, 7)
    assert (params.min_tokens, submit.cache_salt) == (1, "s")


@pytest.mark.parametrize(
    "fields",
    [
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        {"output_format": {"type": "json_schema", "schema": SCHEMA}},
        {"tools": [TOOL], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
        {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "look"}},
    ],
)
def test_what_must_have_a_form_is_held_to_a_grammar(agent: Agent, fields: Any) -> None:
    running = agent(says("a"))
    assert running.post("/v1/messages", message(**fields)).status_code == 200
    assert running.engine.submitted[0].params.grammar is not None


def test_tools_that_must_not_be_called_are_shown_all_the_same(agent: Agent) -> None:
    shown = prompt(agent, tools=[TOOL])
    assert shown.startswith("look;")
    assert prompt(agent, tools=[TOOL], tool_choice={"type": "none"}) == shown


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {
            "type": "base64", "media_type": "image/png", "data": "aGk="}}]}]},
         "messages[0].content[0].type: "),
        ({"messages": [{"role": "user", "content": "x"},
                       {"role": "assistant", "content": [
                           {"type": "tool_use", "id": "a", "name": "look", "input": {
                               "content": [{"type": "image"}]}}]},
                       {"role": "user", "content": [
                           {"type": "tool_result", "tool_use_id": "a", "content": [
                               {"type": "image", "source": {
                                   "type": "url", "url": "http://x"}}]}]}]},
         "messages[2].content[0].content[0].type: "),
        ({"messages": [{"role": "user", "content": [{"type": "document", "source": {
            "type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}]}]},
         "messages[0].content[0].type: "),
        ({"messages": [{"role": "user", "content": [{"type": "container_upload"}]}]},
         "messages[0].content[0].type: "),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "web_search"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "give a tool with a name"),
        ({"mcp_servers": [{"type": "url", "url": "http://x", "name": "x"}]}, "mcp_servers"),
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": None}, "max_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 0}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 8}, "max_tokens": 8},
         "thinking.budget_tokens"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [TOOL, TOOL]}, "tools[1]"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"not": {}}}}},
         "output_config.format"),
        ({"output_format": {"type": "json_schema", "schema": {"not": {}}}}, "output_format"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_the_clients_name(
    agent: Agent, fields: dict[str, Any], told: str
) -> None:
    running = agent(says("a"))
    reply = running.post("/v1/messages", message(**fields))
    assert reply.status_code == 400, reply.text
    body = reply.json()
    assert body["error"]["type"] == "invalid_request_error"
    assert told in body["error"]["message"]
    assert body["request_id"] == reply.headers["request-id"]
    assert not running.engine.submitted


def test_hints_are_named(agent: Agent) -> None:
    running = agent(says("a"))
    tool = {**TOOL, "defer_loading": True, "cache_control": {"type": "ephemeral"}}
    reply = running.post(
        "/v1/messages",
        message(tools=[tool], metadata={"user_id": "u"}, context_management={"edits": []}),
        headers={"anthropic-beta": "a-2025", "anthropic-version": "2023-06-01"},
    )
    assert reply.status_code == 200
    named = reply.headers["x-ignored-params"].split(",")
    assert {"context_management", "anthropic-beta"} <= set(named)
    assert any("defer_loading" in name for name in named)
    assert not any("cache_control" in name for name in named)


def test_counting_is_exact(agent: Agent) -> None:
    running = agent(says("a"))
    body = message(tools=[TOOL], system=[{"type": "text", "text": BILLING.format(1)}])
    running.post("/v1/messages", body)
    body.pop("max_tokens")
    told = client(running).messages.count_tokens(**body)
    assert told.input_tokens == len(running.engine.submitted[0].prompt_token_ids)
    assert len(running.engine.submitted) == 1


def test_keys_and_errors_in_form(start: Start) -> None:
    running = start(MockEngine(says("a")), config=ServerConfig(api_key=("secret",)))
    refused = running.post("/v1/messages", message())
    assert refused.status_code == 401
    assert refused.json()["error"]["type"] == "authentication_error"
    assert refused.json()["request_id"] == refused.headers["request-id"]
    key = {"x-api-key": "secret"}
    assert running.post("/v1/messages?beta=true", message(), headers=key).status_code == 200
    for path, status, kind in (
        ("/v1/messages/nothing", 404, "not_found_error"),
        ("/v1/messages/batches", 404, "not_found_error"),
    ):
        reply = running.post(path, message(), headers=key)
        assert (reply.status_code, reply.json()["error"]["type"]) == (status, kind)
    absent = running.post("/v1/messages", message(model="other"), headers=key)
    assert (absent.status_code, absent.json()["error"]["type"]) == (404, "not_found_error")
    method = running.client.get("/v1/messages", headers=key)
    assert (method.status_code, method.json()["type"]) == (405, "error")


def test_a_prompt_that_is_too_long_says_so_in_the_words_that_agents_look_for(start: Start) -> None:
    running = start(MockEngine(says("a")))
    turns = [{"role": "user", "content": "x" * 2 * MAX_MODEL_LEN}]
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        client(running).messages.create(**message(messages=turns))


def test_before_there_is_a_model_and_with_a_full_body(start: Start) -> None:
    running = start(MockEngine(says("a")), loaded=False)
    reply = running.post("/v1/messages", message())
    assert (reply.status_code, reply.json()["error"]["type"]) == (503, "overloaded_error")
    assert reply.headers["retry-after"]
    running = start(MockEngine(says("a")), config=ServerConfig(max_body_bytes=100))
    reply = running.post("/v1/messages", message(system="x" * 200))
    assert (reply.status_code, reply.json()["error"]["type"]) == (413, "request_too_large")


def test_a_served_name_is_in_the_reply(start: Start) -> None:
    running = start(MockEngine(says("a")))
    assert running.post("/v1/messages", message(model="alias")).json()["model"] == MODEL


def test_models_are_listed_in_form_for_clients_that_send_the_version_of_the_api(
    start: Start,
) -> None:
    running = start(MockEngine(says("a")))
    listed = client(running).models.list()
    assert [(model.type, model.id) for model in listed.data] == [
        ("model", MODEL), ("model", "alias"),
    ]  # fmt: skip
    assert (listed.has_more, listed.first_id, listed.last_id) == (False, MODEL, "alias")
    assert client(running).models.retrieve("alias").created_at.timestamp() == 1700000000
    plain = running.client.get("/v1/models").json()
    assert (plain["object"], plain["data"][0]["object"]) == ("list", "model")
    version = {"anthropic-version": "2023-06-01"}
    raw = running.client.get("/v1/models/alias", headers=version).json()
    assert sorted(raw) == ["created_at", "display_name", "id", "type"]


def test_documents_of_text_and_search_results_are_read_as_their_text(agent: Agent) -> None:
    found = prompt(
        agent,
        messages=[
            {
                "role": "user",
                "content": [
                    {
                        "type": "document",
                        "title": "Notes",
                        "source": {"type": "text", "media_type": "text/plain", "data": "Grüße"},
                    },
                    {
                        "type": "search_result",
                        "source": "https://a.example",
                        "title": "A page",
                        "content": [{"type": "text", "text": "its words"}],
                    },
                    {"type": "text", "text": "Compare them."},
                ],
            }
        ],
    )
    for words in ("Notes\nGrüße", "A page\nhttps://a.example\nits words", "Compare them."):
        assert words in found


def test_an_empty_stop_sequence_stops_nothing(agent: Agent) -> None:
    told = agent(says("hello")).post("/v1/messages", message(stop_sequences=[""])).json()
    assert told["stop_reason"] == "end_turn"
