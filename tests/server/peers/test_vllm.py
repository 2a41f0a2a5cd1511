"""What vLLM's public server tests check, headrace has too, and no other test of ours shows.

docs/compatibility.md says of each of those tests what holds here. Where headrace differs on
purpose, the difference is tested, so that it stays one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import openai
import pytest

from headrace.answer_formats.formats import choose_format
from headrace.config import ServerConfig
from headrace.engine.messages import Output, Submit
from headrace.text import ChatTemplate
from tests.server.chat.test_chat import HELLO, HELLO_IDS, content
from tests.server.chat.test_tools import CALL, WEATHER, with_tools
from tests.server.conftest import MODEL, Running, events_of
from tests.server.connections.test_wire import error_of
from tests.server.mock_engine import MAX_MODEL_LEN, VOCAB_SIZE, MockEngine, output, says
from tests.server.serve_process import Process
from tests.structured.matching import Language

Start = Callable[..., Running]
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
BODIES: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"messages": HELLO}),
    (COMPLETIONS, {"prompt": "x"}),
]
both = pytest.mark.parametrize(("path", "body"), BODIES, ids=["chat", "completions"])

# Of vLLM's metrics, those that its own test expects of a server of text.
METRICS = {
    "num_requests_running", "num_requests_waiting", "num_requests_waiting_by_reason",
    "kv_cache_usage_perc", "prefix_cache_queries_total", "prefix_cache_hits_total",
    "num_preemptions_total", "prompt_tokens_total", "generation_tokens_total",
    "iteration_tokens_total_count", "cache_config_info", "request_success_total",
    "request_prompt_tokens_count", "request_generation_tokens_count",
    "request_params_n_count", "request_params_max_tokens_count",
    "time_to_first_token_seconds_count", "inter_token_latency_seconds_count",
    "e2e_request_latency_seconds_count", "request_queue_time_seconds_count",
    "request_inference_time_seconds_count", "request_prefill_time_seconds_count",
    "request_decode_time_seconds_count", "request_num_preemptions_count",
}  # fmt: skip


@both
@pytest.mark.parametrize(
    "fields",
    [{"logit_bias": {str(VOCAB_SIZE + 1): 1}}, {"stop_token_ids": [VOCAB_SIZE + 1]}],
    ids=["logit_bias", "stop_token_ids"],
)
def test_ids_beyond_the_vocabulary_are_refused_with_its_size(
    start: Start, path: str, body: dict[str, Any], fields: dict[str, Any]
) -> None:
    server = start(MockEngine(says("x")))
    error = error_of(server.post(path, {**body, **fields}), 400)
    assert error["param"].partition("[")[0].partition(".")[0] in fields
    assert str(VOCAB_SIZE + 1) in error["message"]
    assert f"0 to {VOCAB_SIZE - 1}" in error["message"]
    last = {"logit_bias": {str(VOCAB_SIZE - 1): 1}, "stop_token_ids": [VOCAB_SIZE - 1]}
    assert server.post(path, {**body, **last}).status_code == 200


def test_offsets_do_not_feel_what_is_held_back_for_a_stop_string(start: Start) -> None:
    server = start(MockEngine(says("ab\nde\n!")))
    fields = {"stop": ["\n\n"], "logprobs": 0}
    whole = server.complete(**fields)["choices"][0]["logprobs"]
    events = server.stream_completion(**fields)
    parts = [choice["logprobs"] for event in events for choice in event["choices"]]
    for column in ("text_offset", "tokens", "token_logprobs"):
        assert [one for part in parts if part for one in part[column]] == whole[column]
    assert whole["text_offset"][:7] == [*range(7)]


def test_token_ids_prompt_logprobs_and_logprobs_name_the_same_tokens(start: Start) -> None:
    server = start(MockEngine(says("größe")))
    choice = server.complete(
        prompt="Höhe", echo=True, logprobs=1, prompt_logprobs=1, return_token_ids=True,
        return_tokens_as_token_ids=True,
    )["choices"][0]  # fmt: skip
    named = [int(one.removeprefix("token_id:")) for one in choice["logprobs"]["tokens"]]
    assert named == choice["prompt_token_ids"] + choice["token_ids"]
    assert choice["prompt_token_ids"] == [*"Höhe".encode()]
    first, *rest = choice["prompt_logprobs"]
    assert first is None
    assert [next(iter(one)) for one in rest] == [str(one) for one in choice["prompt_token_ids"][1:]]


def test_ids_of_a_stream_are_those_of_its_logprobs_and_the_prompts_come_once(start: Start) -> None:
    server = start(MockEngine(says("😀a", cut=2)))
    fields = {"return_token_ids": True, "return_tokens_as_token_ids": True}
    first, *rest = server.stream_completion(logprobs=1, **fields)
    assert first["choices"][0]["prompt_token_ids"] == [*b"x"]
    assert not [one for one in rest if "prompt_token_ids" in one["choices"][0]]
    choices = [event["choices"][0] for event in (first, *rest)]
    named = [t for choice in choices for t in choice["logprobs"]["tokens"]]
    assert named == [f"token_id:{one}" for choice in choices for one in choice["token_ids"]]
    body = {"messages": HELLO, "stream": True, "return_token_ids": True}
    first, *rest = events_of(server.post(CHAT, body))
    assert first["prompt_token_ids"] == HELLO_IDS
    assert not [one for one in rest if "prompt_token_ids" in one]
    ids = [t for event in rest for choice in event["choices"] for t in choice.get("token_ids", [])]
    assert bytes(ids[:5]).decode() == "😀a" == content([first, *rest])


def test_asking_for_ids_does_not_change_how_tokens_are_written(start: Start) -> None:
    server = start(MockEngine(says("hi")))
    (choice,) = server.chat(logprobs=True, top_logprobs=1, return_token_ids=True)["choices"]
    written = [one["token"] for one in choice["logprobs"]["content"]]
    assert written[:2] == ["h", "i"]
    assert not [one for one in written if one.startswith("token_id:")]


def test_what_was_cached_adds_up_over_prompts_and_counts_once_in_a_stream(start: Start) -> None:
    async def reply(submit: Submit) -> AsyncIterator[Output]:
        cached = 3 if submit.prompt_token_ids == [*b"abcd"] else 5
        for part, reason in (([97], None), ([98], None), ([99], "length")):
            yield output(submit, part, reason, cached)  # type: ignore[arg-type]

    server = start(MockEngine(reply))
    prompts = ["abcd", "abcdefg"]
    told = {"prompt_tokens": 11, "prompt_tokens_details": {"cached_tokens": 8}}
    assert told.items() <= server.complete(prompt=prompts, max_tokens=3)["usage"].items()
    asked = {"prompt": prompts, "max_tokens": 3, "stream_options": {"include_usage": True}}
    assert told.items() <= server.stream_completion(**asked)[-1]["usage"].items()


@both
@pytest.mark.parametrize("option", ["include_usage", "continuous_usage_stats"])
@pytest.mark.parametrize("value", [True, None])
def test_stream_options_need_a_stream_whatever_they_say(
    start: Start, path: str, body: dict[str, Any], option: str, value: Any
) -> None:
    reply = start(MockEngine(says("x"))).post(path, {**body, "stream_options": {option: value}})
    assert error_of(reply, 400)["param"] == "stream_options"


@both
def test_without_stream_options_a_stream_tells_no_usage(
    start: Start, path: str, body: dict[str, Any]
) -> None:
    server = start(MockEngine(says("hi")))
    for options in (None, {}, {"include_usage": False, "continuous_usage_stats": False}):
        asked = {**body, "stream": True, "stream_options": options}
        assert not [one for one in events_of(server.post(path, asked)) if one.get("usage")]


@both
def test_minus_one_log_probabilities_are_refused(
    start: Start, path: str, body: dict[str, Any]
) -> None:
    server = start(MockEngine(says("x")))
    rivals = "top_logprobs" if path == CHAT else "logprobs"
    extra = {"logprobs": True} if path == CHAT else {}
    for name in (rivals, "prompt_logprobs"):
        assert error_of(server.post(path, {**body, **extra, name: -1}), 400)["param"] == name


@pytest.mark.parametrize("seed", [-(2**63) - 1, 2**63])
@both
def test_a_seed_of_more_than_64_bits_is_refused(
    start: Start, path: str, body: dict[str, Any], seed: int
) -> None:
    reply = start(MockEngine(says("x"))).post(path, {**body, "seed": seed})
    assert error_of(reply, 400)["param"] == "seed"


@both
def test_refused_requests_leave_a_server_that_answers(
    start: Start, path: str, body: dict[str, Any]
) -> None:
    """Asked for as a stream, a refusal is a plain 400 and no event."""
    server = start(MockEngine(says("hi")))
    rivals = {"logprobs": True, "top_logprobs": 21} if path == CHAT else {"logprobs": 21}
    for streams in (False, True):
        error = error_of(server.post(path, {**body, **rivals, "stream": streams}), 400)
        assert "20" in error["message"]
    assert server.post(path, body).status_code == 200


def test_a_conversation_without_a_limit_may_fill_the_context(start: Start) -> None:
    engine = MockEngine(says("x"))
    server = start(engine)
    server.chat()
    assert engine.submitted[-1].params.max_tokens in (None, MAX_MODEL_LEN - len(HELLO_IDS))
    server.chat(max_tokens=10)
    assert engine.submitted[-1].params.max_tokens == 10
    server.chat(max_tokens=10, max_completion_tokens=5)
    assert engine.submitted[-1].params.max_tokens == 5


@both
def test_a_model_may_be_left_out_and_the_reply_has_its_first_name(
    start: Start, path: str, body: dict[str, Any]
) -> None:
    server = start(MockEngine(says("x")))
    assert server.post(path, body).json()["model"] == MODEL
    assert server.post(path, {**body, "model": "alias"}).json()["model"] == MODEL
    assert error_of(server.post(path, {**body, "model": ""}), 404)["code"] == "model_not_found"


@both
def test_the_last_tokens_are_kept_and_never_the_first(
    start: Start, path: str, body: dict[str, Any]
) -> None:
    engine = MockEngine(says("x"))
    server = start(engine)
    asked = {**body, "truncate_prompt_tokens": 1}
    assert server.post(path, {**asked, "truncation_side": "left"}).status_code == 200
    assert len(engine.submitted[-1].prompt_token_ids) == 1
    error = error_of(server.post(path, {**asked, "truncation_side": "right"}), 400)
    assert error["param"] == "truncation_side"
    assert '"left"' in error["message"]


@both
def test_fields_of_vllm_that_change_what_comes_out_are_not_ignored(
    start: Start, path: str, body: dict[str, Any]
) -> None:
    server = start(MockEngine(says("x")))
    fields: dict[str, Any] = {
        "logprob_token_ids": [1, 2], "use_beam_search": True, "watermarking": True,
        "repetition_detection": {"max_pattern_size": 4}, "return_prompt_text": True,
    }  # fmt: skip
    if path == CHAT:
        fields |= {"prompt_token_ids": [1, 2], "echo": True}
    for name, value in fields.items():
        assert error_of(server.post(path, {**body, name: value}), 400)["param"] == name


def test_an_effort_sets_the_switch_of_a_template(start: Start) -> None:
    template = ChatTemplate("{{ enable_thinking is defined }}{{ enable_thinking }}")
    engine = MockEngine(says("x"))
    server = start(engine, template=template)

    def rendered(**fields: Any) -> str:
        server.chat(**fields)
        return bytes(engine.submitted[-1].prompt_token_ids).decode()

    assert rendered(reasoning_effort="none") == "TrueFalse"
    assert rendered() == "False"
    for effort in ("low", "medium", "high", "max"):
        assert rendered(reasoning_effort=effort) == "TrueTrue"
    own = {"enable_thinking": True}
    assert rendered(reasoning_effort="none", chat_template_kwargs=own) == "TrueTrue"


def test_a_role_nobody_knows_is_refused_by_name(start: Start) -> None:
    messages = [{"role": "my-custom-role", "content": "x"}]
    error = error_of(start(MockEngine(says("x"))).post(CHAT, {"messages": messages}), 400)
    assert error["param"] == "messages[0].role"


def test_a_null_tool_choice_is_none_at_all(start: Start) -> None:
    server = start(MockEngine(says("x")))
    reply = server.post(CHAT, {"messages": HELLO, "tool_choice": None})
    assert reply.status_code == 200
    assert "x-ignored-params" not in reply.headers
    error = error_of(server.post(CHAT, {"messages": HELLO, "tool_choice": "bogus"}), 400)
    assert error["param"] == "tool_choice"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "x"}}])
@pytest.mark.parametrize("tools", [None, []])
def test_calls_cannot_be_required_without_tools(start: Start, choice: Any, tools: Any) -> None:
    body = {"messages": HELLO, "tools": tools, "tool_choice": choice}
    error = error_of(start(MockEngine(says("x"))).post(CHAT, body), 400)
    assert error["param"] == "tool_choice"


@pytest.mark.parametrize("choice", [None, "auto", "none"])
@pytest.mark.parametrize("tools", [None, []])
def test_a_choice_that_requires_nothing_needs_no_tools(
    start: Start, choice: Any, tools: Any
) -> None:
    server = with_tools(start, MockEngine(says(CALL)))
    (chosen,) = server.chat(tools=tools, tool_choice=choice)["choices"]
    assert chosen["message"]["content"] == CALL
    assert chosen["finish_reason"] == "stop"


@pytest.mark.parametrize(
    "choice", [{}, {"type": "function", "function": {"name": "other"}}, {"type": "function"}]
)
def test_a_choice_of_no_tool_that_is_there_is_refused(start: Start, choice: Any) -> None:
    body = {"messages": HELLO, "tools": [WEATHER], "tool_choice": choice}
    error = error_of(start(MockEngine(says("x"))).post(CHAT, body), 400)
    assert error["param"].partition(".")[0] == "tool_choice"


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "get_weather"}}]
)
def test_a_required_call_without_room_is_no_call(start: Start, choice: Any) -> None:
    server = with_tools(start, MockEngine(says(CALL[:1], ends=False)))
    (chosen,) = server.chat(tools=[WEATHER], tool_choice=choice, max_tokens=1)["choices"]
    assert chosen["finish_reason"] == "length"
    assert "tool_calls" not in chosen["message"]


def test_ids_come_with_calls_whole_and_streamed(start: Start) -> None:
    server = with_tools(start, MockEngine(says(CALL)))
    asked: dict[str, Any] = {"tools": [WEATHER], "return_token_ids": True}
    (whole,) = server.chat(**asked)["choices"]
    assert whole["message"]["tool_calls"]
    assert bytes(one for one in whole["token_ids"] if one < 256).decode() == CALL
    events = events_of(server.post(CHAT, {"messages": HELLO, **asked, "stream": True}))
    choices = [choice for event in events for choice in event["choices"]]
    streamed = [one for choice in choices for one in choice.get("token_ids", ())]
    assert streamed == whole["token_ids"]


def test_tools_are_counted_as_generation_would_take_them(start: Start) -> None:
    engine = MockEngine(says("x"))
    server = with_tools(start, engine)
    server.chat(tools=[WEATHER])
    told = server.post("/tokenize", {"messages": HELLO, "tools": [WEATHER]}).json()
    assert told["tokens"] == engine.submitted[-1].prompt_token_ids


def test_a_call_comes_after_reasoning_whole_and_streamed(start: Start) -> None:
    engine = MockEngine(says(f"<think>\nHm.\n</think>\n{CALL}"))
    marks = "<think></think><tool_call>"
    server = start(engine, template=ChatTemplate("x"), answer_format=choose_format(marks))
    (choice,) = server.chat(tools=[WEATHER])["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["reasoning"] == "Hm."
    (call,) = choice["message"]["tool_calls"]
    events = events_of(server.post(CHAT, {"messages": HELLO, "tools": [WEATHER], "stream": True}))
    deltas = [choice["delta"] for event in events for choice in event["choices"]]
    assert "".join(delta.get("reasoning", "") for delta in deltas) == "Hm."
    pieces = [piece["function"] for delta in deltas for piece in delta.get("tool_calls", ())]
    assert pieces[0]["name"] == call["function"]["name"] == "get_weather"
    assert "".join(one["arguments"] for one in pieces) == call["function"]["arguments"]


@pytest.mark.parametrize("shown", [True, False])
def test_a_form_begins_after_reasoning_shown_or_not(start: Start, shown: bool) -> None:
    engine = MockEngine(says("x"))
    template = ChatTemplate("{% if add_generation_prompt %}<think>\n{% endif %}")
    server = start(engine, template=template, answer_format=choose_format("<think></think>"))
    server.chat(guided_choice=["yes", "no"], include_reasoning=shown)
    grammar = engine.submitted[-1].params.grammar
    assert grammar is not None
    texts = Language(grammar)
    assert texts.has("Hm, let me see.\n</think>\n\nyes")
    assert not texts.has("yes")
    assert not texts.has("Hm.</think>maybe")


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_of_earlier_turns_comes_back_under_either_name(start: Start, name: str) -> None:
    engine = MockEngine(says("x"))
    text = "{% for m in messages %}{{ m.reasoning_content }}|{{ m.content }}{% endfor %}"
    said = {"role": "assistant", "content": "4", name: "2+2 is 4"}
    start(engine, template=ChatTemplate(text)).chat(messages=[*HELLO, said, *HELLO])
    assert "2+2 is 4|4" in bytes(engine.submitted[0].prompt_token_ids).decode()


@pytest.mark.parametrize("arguments", ["{}", "", None])
def test_a_call_without_arguments_may_come_back_in_any_form(start: Start, arguments: Any) -> None:
    engine = MockEngine(says("x"))
    call = {"id": "1", "type": "function", "function": {"name": "now", "arguments": arguments}}
    said = [
        *HELLO,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "12:00"},
    ]
    with_tools(start, engine).chat(messages=said)
    assert "now({})" in bytes(engine.submitted[0].prompt_token_ids).decode()


def test_a_budget_of_minus_one_is_no_limit(start: Start) -> None:
    engine = MockEngine(says("x"))
    template = ChatTemplate("x")
    server = start(engine, template=template, answer_format=choose_format("<think></think>"))
    server.chat(thinking_token_budget=-1, reasoning={"max_tokens": 5})
    assert engine.submitted[-1].params.thinking is None
    for wrong in (-2, 0.6, 10.5):
        body = {"messages": HELLO, "thinking_token_budget": wrong}
        assert error_of(server.post(CHAT, body), 400)["param"] == "thinking_token_budget"


@pytest.mark.parametrize("prompt", [[], None, [[]], [-1], [[-1]], [999_999]])
def test_prompts_without_tokens_or_with_impossible_ones_are_refused(
    start: Start, prompt: Any
) -> None:
    engine = MockEngine(says("x"))
    reply = start(engine).post(COMPLETIONS, {"prompt": prompt})
    assert error_of(reply, 400)["param"].startswith("prompt")
    assert not engine.submitted


def test_a_slash_at_the_end_makes_another_path(start: Start) -> None:
    server = start(MockEngine(says("x")), config=ServerConfig(api_key=("k",)))
    assert server.client.get("/v1/models/").status_code == 401
    assert server.client.get("/health/", headers={"x-api-key": "k"}).status_code == 404


def test_errors_of_the_engine_tell_nothing_of_this_machine(start: Start) -> None:
    async def fails(submit: Submit) -> AsyncIterator[Output]:
        raise RuntimeError("<object at 0x7f00> in /usr/lib/python3/thing.py")
        yield output(submit, [])

    server = start(MockEngine(fails))
    for path, body in BODIES:
        reply = server.post(path, body)
        assert "0x7f00" not in reply.text
        assert "/usr/lib" not in reply.text
        assert error_of(reply, 500)["code"] == "internal_error"


@pytest.mark.parametrize("field", ["messages", "stop", "logit_bias"])
def test_an_error_is_short_however_much_is_wrong(start: Start, field: str) -> None:
    reply = start(MockEngine(says("x"))).post(CHAT, {"messages": HELLO, field: [1] * 20_000})
    assert error_of(reply, 400)["param"].startswith(field)
    assert len(reply.content) < 2_000


def test_the_metrics_that_vllms_dashboards_read_are_there(running: Process) -> None:
    assert running.post(COMPLETIONS, prompt="Hello", max_tokens=2, ignore_eos=True).is_success
    lines = httpx.get(f"{running.url}/metrics").text.splitlines()
    there = {line.partition("{")[0].partition(" ")[0] for line in lines if not line.startswith("#")}
    assert {f"vllm:{name}" for name in METRICS} <= there


@pytest.mark.load
def test_clients_that_give_up_leave_a_server_that_answers_at_once(running: Process) -> None:
    client = openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)
    impatient = client.with_options(timeout=0.05)
    model = client.models.list().data[0].id
    long = {"min_tokens": 400, "ignore_eos": True}
    for _ in range(6):
        with pytest.raises(openai.APITimeoutError):
            impatient.completions.create(model=model, prompt="x", max_tokens=400, extra_body=long)
    reply = client.with_options(timeout=5).completions.create(model=model, prompt="x", max_tokens=2)
    assert len(reply.choices) == 1
