"""Ollama's API on the server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import ollama
import pytest

from headrace.config import ServerConfig
from headrace.server.routes.ollama import NOT_HERE
from tests.server.conftest import MODEL, Running
from tests.server.dialects.conftest import CALLS, SAYS, SCHEMA, THINKS, Agent, prompt_of, turn
from tests.server.mock_engine import MAX_MODEL_LEN, MockEngine, says
from tests.tiny import EOS

Start = Callable[..., Running]

TOOL = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}


def client(running: Running) -> ollama.Client:
    return ollama.Client(host=running.url)


def lines(reply: httpx.Response) -> list[Any]:
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in reply.text.splitlines()]


def test_a_chat_streams_lines_unless_told_otherwise(start: Start) -> None:
    running = start(MockEngine(says("hé", cached_tokens=2)))
    streamed = lines(running.post("/api/chat", turn()))
    assert [one["message"]["content"] for one in streamed] == ["h", "é", ""]
    assert [one["done"] for one in streamed] == [False, False, True]
    whole = running.post("/api/chat", turn(stream=False)).json()
    assert whole["message"] == {"role": "assistant", "content": "hé"}
    for last in (whole, streamed[-1]):
        assert (last["model"], last["done"], last["done_reason"]) == (MODEL, True, "stop")
        assert last["prompt_eval_count"] == len(running.engine.submitted[0].prompt_token_ids)
        assert last["eval_count"] == 4
        assert last["total_duration"] > 0 and last["prompt_eval_duration"] == 500_000_000
        assert last["created_at"].endswith("Z") and last["created_at"] > "2026"


@pytest.mark.parametrize("cut", [1, 4, 1000])
def test_the_package_reads_thoughts_and_calls(agent: Agent, cut: int) -> None:
    running = agent(says(THINKS + SAYS + CALLS, cut=cut))
    whole = client(running).chat(**turn(tools=[TOOL], think=True))
    assert whole.message.thinking == "hm, é"
    assert (whole.message.content or "").strip() == SAYS.strip()
    (call,) = whole.message.tool_calls or ()
    assert (call.function.name, call.function.arguments) == ("look", {"city": "Köln", "n": [1, 2]})
    parts = list(client(running).chat(**turn(tools=[TOOL], think=True, stream=True)))
    assert "".join(one.message.thinking or "" for one in parts) == whole.message.thinking
    assert "".join(one.message.content or "" for one in parts) == whole.message.content
    calls = [call for one in parts for call in one.message.tool_calls or ()]
    assert [one.function for one in calls] == [call.function]


def test_results_and_thoughts_come_back_to_the_template(agent: Agent) -> None:
    running = agent(says(THINKS + CALLS))
    first = client(running).chat(**turn(tools=[TOOL]))
    told: list[Any] = [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": "x"},
        first.message,
        {"role": "tool", "tool_name": "look", "content": "sun"},
        {"role": "user", "content": "and?"},
    ]
    client(running).chat(model=MODEL, messages=told, tools=[TOOL])
    said = prompt_of(running)
    assert said.startswith("look;<system>You help.<user>x<assistant>(hm, é)[")
    assert "<tool>sun@" in said and said.endswith("<user>and?<assistant>")


@pytest.mark.parametrize(
    ("think", "end"),
    [(None, ""), (True, "|True"), (False, "|False"), ("low", "|True"), ("high", "|True")],
)
def test_think(agent: Agent, think: Any, end: str) -> None:
    running = agent(says("a"))
    assert running.post("/api/chat", turn(think=think)).status_code == 200
    assert prompt_of(running).endswith(f"<assistant>{end}")


@pytest.mark.parametrize("form", ["json", SCHEMA])
def test_format_holds_the_answer(agent: Agent, form: Any) -> None:
    running = agent(says("{}"))
    client(running).chat(**turn(format=form))
    client(running).generate(MODEL, "x", format=form)
    assert all(one.params.grammar is not None for one in running.engine.submitted)


def test_options_reach_the_engine(start: Start) -> None:
    running = start(MockEngine(says("abcdef")))
    options = {
        "num_predict": 5,
        "temperature": 0.5,
        "top_k": 3,
        "top_p": 0.25,
        "min_p": 0.125,
        "seed": 7,
        "repeat_penalty": 1.5,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.75,
        "stop": ["cd"],
        "num_ctx": MAX_MODEL_LEN,
        "num_gpu": 1,
        "mirostat": 0,
    }
    reply = running.post("/api/chat", turn(options=options, keep_alive="5m", stream=False))
    assert (reply.json()["message"]["content"], reply.json()["done_reason"]) == ("ab", "stop")
    assert reply.headers["x-ignored-params"] == "options.num_gpu"
    params = running.engine.submitted[0].params
    assert (params.max_tokens, params.temperature, params.top_k) == (5, 0.5, 3)
    assert (params.top_p, params.min_p, params.seed) == (0.25, 0.125, 7)
    assert (params.repetition_penalty, params.presence_penalty) == (1.5, 0.5)
    assert params.frequency_penalty == 0.75


@pytest.mark.parametrize("num_predict", [-1, -2, None, 100_000])
def test_as_many_as_fit(start: Start, num_predict: int | None) -> None:
    running = start(MockEngine(says("a")))
    running.post("/api/chat", turn(options={"num_predict": num_predict}))
    submit = running.engine.submitted[0]
    assert submit.params.max_tokens == MAX_MODEL_LEN - len(submit.prompt_token_ids)


def test_a_limit_is_a_reason(start: Start) -> None:
    running = start(MockEngine(says("abcdef")))
    told = running.post("/api/chat", turn(options={"num_predict": 2}, stream=False)).json()
    assert (told["message"]["content"], told["done_reason"]) == ("ab", "length")


@pytest.mark.parametrize(
    ("path", "fields", "named"),
    [
        ("/api/chat", {"options": {"num_ctx": MAX_MODEL_LEN + 1}}, "options.num_ctx"),
        ("/api/chat", {"options": {"num_predict": 0}}, "options.num_predict"),
        ("/api/chat", {"options": {"mirostat": 2}}, "options.mirostat"),
        ("/api/chat", {"options": {"temperature": -1}}, "options.temperature"),
        ("/api/chat", {"options": {"temperature": "a"}}, "options.temperature"),
        ("/api/chat", {"options": {"repeat_penalty": 0}}, "options.repeat_penalty"),
        ("/api/chat", {"format": {"not": {}}}, "format"),
        ("/api/chat", {"format": 3}, "format"),
        ("/api/chat", {"think": "much"}, "think"),
        ("/api/chat", {"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]},
         "messages[0].images: "),
        ("/api/generate", {"prompt": "x \"images\"", "images": ["aGk="]}, '"error":"images: '),
        ("/api/chat", {"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ("/api/generate", {"prompt": "x", "suffix": "y"}, "suffix"),
        ("/api/generate", {"prompt": "x", "template": "{{ .Prompt }}"}, "template"),
        ("/api/generate", {"prompt": "x", "raw": True, "system": "s"}, "system"),
        ("/api/generate", {"prompt": "x", "raw": True, "context": [1]}, "context"),
        ("/api/generate", {"prompt": "x", "raw": "yes"}, "raw"),
        ("/api/generate", {"prompt": "x", "context": ["a"]}, "context"),
        ("/api/generate", {"prompt": "x", "context": [1 << 20]}, "context"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_the_clients_name(
    start: Start, path: str, fields: dict[str, Any], named: str
) -> None:
    running = start(MockEngine(says("a")))
    reply = running.post(
        path, turn(**fields) if path == "/api/chat" else {"model": MODEL, **fields}
    )
    assert reply.status_code == 400, reply.text
    assert list(reply.json()) == ["error"]
    assert named in (reply.text if named.startswith('"') else reply.json()["error"])
    assert not running.engine.submitted


def test_a_context_that_is_too_long_is_refused_with_one_that_is_taken(start: Start) -> None:
    running = start(MockEngine(says("a")))
    longer = turn(options={"num_ctx": MAX_MODEL_LEN + 1})
    error = running.post("/api/chat", longer).json()["error"]
    assert f"omit it, or give at most {MAX_MODEL_LEN}: " in error
    assert "as the model was made for" in error, "no setting makes it longer than that"
    accepted = turn(options={"num_ctx": MAX_MODEL_LEN})
    assert running.post("/api/chat", accepted).status_code == 200


def test_a_name_with_latest_is_the_name(start: Start) -> None:
    running = start(MockEngine(says("a")))
    told = running.post("/api/chat", turn(model="alias:latest", stream=False)).json()
    assert told["model"] == "alias:latest"
    assert client(running).show(f"{MODEL}:latest").capabilities == ["completion"]
    with pytest.raises(ollama.ResponseError, match="model 'other:latest' not found") as raised:
        client(running).chat(**turn(model="other:latest"))
    assert raised.value.status_code == 404


def test_a_prompt_alone(agent: Agent) -> None:
    running = agent(says(THINKS + "yes"))
    told = client(running).generate(MODEL, "x", system="You help.")
    assert (told.response, told.thinking, told.done_reason) == ("yes", "hm, é", "stop")
    assert prompt_of(running) == "<system>You help.<user>x<assistant>"
    submit = running.engine.submitted[0]
    said = (THINKS + "yes").encode()
    assert list(told.context or ()) == [*submit.prompt_token_ids, *said, EOS]
    client(running).generate(MODEL, "more", context=told.context)
    ids = running.engine.submitted[1].prompt_token_ids
    assert ids == [*(told.context or ()), *b"<user>more<assistant>"]
    parts = list(client(running).generate(MODEL, "x", stream=True))
    assert "".join(one.response for one in parts) == "yes"
    assert "".join(one.thinking or "" for one in parts) == "hm, é"
    assert parts[-1].context and parts[-1].total_duration


def test_a_raw_prompt_stands_as_it_is(agent: Agent) -> None:
    running = agent(says(THINKS + "yes"))
    told = client(running).generate(MODEL, "a|b", raw=True)
    assert running.engine.submitted[0].prompt_token_ids == [*b"a|b"]
    assert told.response == THINKS + "yes"
    assert told.context is None


def test_a_raw_prompt_with_a_form_has_no_thoughts_before_it(agent: Agent) -> None:
    running = agent(says('{"a":1}'))
    client(running).generate(MODEL, "a|b", raw=True, format={"type": "object"})
    grammar = running.engine.submitted[0].params.grammar
    assert grammar is not None and grammar.kind == "json_schema"


def test_calls_without_a_prompt_load(start: Start) -> None:
    running = start(MockEngine(says("a")))
    for path in ("/api/chat", "/api/generate"):
        told = running.post(path, {"model": MODEL}).json()
        assert (told["done"], told["done_reason"]) == (True, "load")
        told = running.post(path, {"model": MODEL, "keep_alive": 0}).json()
        assert told["done_reason"] == "unload"
    assert not running.engine.submitted


def test_lists_and_descriptions(agent: Agent) -> None:
    running = agent(says("a"))
    listed = client(running).list().models
    assert [one.model for one in listed] == [MODEL, "alias"]
    assert listed[0].size == 1000 and listed[0].details is not None
    shown = client(running).show(MODEL)
    assert shown.capabilities == ["completion", "tools", "thinking"]
    assert (shown.modelinfo or {})["mock.context_length"] == MAX_MODEL_LEN
    (first, _) = client(running).ps().models
    assert (first.model, first.context_length) == (MODEL, MAX_MODEL_LEN)
    assert running.client.get("/api/version").json()["version"]
    assert running.client.head("/api/version").status_code == 200


def test_details_are_those_of_the_file(start: Start) -> None:
    facts: dict[str, Any] = {"file_format": "gguf", "num_parameters": 8_030_261_248}
    running = start(MockEngine(says("a")), file_type=15, **facts)
    expected = {
        "parent_model": "", "format": "gguf", "family": "mock", "families": ["mock"],
        "parameter_size": "8.0B", "quantization_level": "Q4_K_M",
    }  # fmt: skip
    (tagged, _) = running.client.get("/api/tags").json()["models"]
    (loaded, _) = running.client.get("/api/ps").json()["models"]
    shown = running.post("/api/show", {"model": MODEL}).json()
    for told in (tagged, loaded, shown):
        assert told["details"] == expected
    for file_type in (None, 4_000_000_000, "Q4_K_M"):
        unnamed = start(MockEngine(says("a")), file_type=file_type)
        shown = unnamed.post("/api/show", {"model": MODEL}).json()
        assert shown["details"]["quantization_level"] == unnamed.engine.info.weight_codec == "F32"


@pytest.mark.parametrize(("method", "path"), [(method, path) for method, path, _ in NOT_HERE])
def test_what_keeps_models_says_what_does_it_here(start: Start, method: str, path: str) -> None:
    running = start(MockEngine(says("a")))
    reply = running.client.request(method, path, json={"model": "x"})
    assert reply.status_code == 400
    assert reply.json()["error"].startswith(f"{path} is not supported here: ")


def test_log_probabilities(start: Start) -> None:
    running = start(MockEngine(says("ab")))
    whole = running.post("/api/chat", turn(stream=False, logprobs=True, top_logprobs=2)).json()
    told = whole["logprobs"]
    assert [one["token"] for one in told][:2] == ["a", "b"]
    assert len(told[0]["top_logprobs"]) == 2
    streamed = lines(running.post("/api/chat", turn(logprobs=True, top_logprobs=2)))
    assert [one for line in streamed for one in line.get("logprobs", ())] == told


def test_errors_are_in_form(start: Start) -> None:
    running = start(MockEngine(says("a")), config=ServerConfig(api_key=("secret",)))
    for path in ("/api/chat", "/api/tags", "/api/nothing"):
        reply = running.post(path, turn())
        assert (reply.status_code, list(reply.json())) == (401, ["error"])
    keyed = ollama.Client(host=running.url, headers={"Authorization": "Bearer secret"})
    assert keyed.chat(**turn()).message.content == "a"
    for method, path, status in (("POST", "/api/nothing", 404), ("GET", "/api/chat", 405)):
        reply = running.client.request(
            method, path, headers={"authorization": "Bearer secret"}, json=turn()
        )
        assert (reply.status_code, list(reply.json())) == (status, ["error"])
    running = start(MockEngine(says("a")), loaded=False)
    reply = running.post("/api/chat", turn())
    assert (reply.status_code, list(reply.json())) == (503, ["error"])
