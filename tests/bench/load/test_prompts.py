"""Options of the command become requests; what a run is told of itself has no secrets."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headrace.bench.client.decode import Asked
from headrace.bench.client.endpoints import EndpointKind
from headrace.bench.client.raw import RawReply
from headrace.bench.load.about import about_run
from headrace.bench.load.conversations import Conversation
from headrace.bench.load.probe import Found, UnreachableError, choose_model, look
from headrace.bench.load.prompt_options import PromptOptions, RunPrompts, make_requests
from headrace.bench.load.replies import Replies
from headrace.bench.load.tokenization import ClientTokenization, counted, load_tokenization
from headrace.bench.mock.endpoint import MockEndpoint
from headrace.bench.mock.settings import MockSettings
from headrace.bench.record import Failure
from headrace.errors import ConfigError
from tests.bench.client.wire import scripted
from tests.bench.load.helpers import endpoint
from tests.bench.streams import stream


@pytest.fixture(scope="module")
def tokenization() -> ClientTokenization:
    return load_tokenization(None)


def made(
    tokenization: ClientTokenization,
    kind: EndpointKind = "openai-chat",
    requests: int | None = 6,
    warmup: int = 0,
    **options: Any,
) -> RunPrompts:
    options = {"input_tokens": "20", "output_tokens": "5", **options}
    return make_requests(
        PromptOptions(**options), tokenization, kind, requests=requests, warmup_requests=warmup
    )


def test_lengths_are_exact_by_the_tokenizer(tokenization: ClientTokenization) -> None:
    found = made(tokenization, input_tokens="5..30", warmup=3)
    assert found.exact
    assert len(found.conversations) == 6
    for (item,) in found.conversations:
        assert len(tokenization.encode(item.prompt.text or "")) == item.prompt_tokens_asked
        assert item.prompt.max_tokens == 5
    texts = {turns[0].prompt.text for turns in (*found.conversations, *found.warmup)}
    assert len(texts) == 9  # the warm-up has prompts of its own
    assert found.times_ns == ()


def test_unique_prompts_differ_from_their_first_word(tokenization: ClientTokenization) -> None:
    found = made(tokenization, requests=30, unique=True, salt_seed=3)
    again = made(tokenization, requests=30, unique=True, salt_seed=4)
    fronts = [
        (item.prompt.text or "")[:12] for run in (found, again) for (item,) in run.conversations
    ]
    assert len(set(fronts)) > 55
    assert found.fingerprint != again.fingerprint


def test_a_prefix_is_shared(tokenization: ClientTokenization) -> None:
    found = made(tokenization, prefix_tokens="30", prefixes=2)
    starts = {(item.prompt.text or "")[:40] for (item,) in found.conversations}
    assert len(starts) == 2


@pytest.mark.parametrize("options", [{"prefix_tokens": "30"}, {"turns": "2"}, {}])
def test_a_warm_up_heats_no_prefix_of_what_is_measured(
    tokenization: ClientTokenization, options: dict[str, Any]
) -> None:
    found = made(tokenization, requests=12, warmup=12, **options)

    def starts(of: Sequence[Conversation]) -> set[tuple[int, ...]]:
        """As many tokens as the smallest blocks of a prefix cache have."""
        return {
            tuple(tokenization.encode(json.dumps(item.prompt.messages) + (item.prompt.text or "")))[
                :16
            ]
            for turns in of
            for item in turns[:1]
        }

    assert len(found.warmup) == 12
    assert not starts(found.warmup) & starts(found.conversations)


def test_a_trace_is_read_as_far_as_it_lasts_and_in_its_blocks(
    tokenization: ClientTokenization, tmp_path: Path
) -> None:
    path = tmp_path / "trace.jsonl"
    rows = [
        {"timestamp": 1000 * at, "input_length": 6, "output_length": 3, "hash_ids": [1, at + 2]}
        for at in range(5)
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    def read(**options: Any) -> RunPrompts:
        return make_requests(
            PromptOptions(trace=path, **options),
            tokenization,
            "openai-chat",
            requests=None,
            warmup_requests=0,
            trace_s=2.5,
        )

    found = read(block_tokens=4)
    assert found.times_ns == (0, 1_000_000_000, 2_000_000_000)
    heads = {
        tuple(tokenization.encode(item.prompt.text or "")[:4]) for (item,) in found.conversations
    }
    assert len(heads) == 1
    with pytest.raises(ConfigError, match="has 1 blocks of 512 tokens; name the block size"):
        read()


def test_embeddings_get_inputs_and_chats_get_images(tokenization: ClientTokenization) -> None:
    texts = made(tokenization, "openai-embeddings")
    assert texts.conversations[0][0].prompt.inputs
    images = made(tokenization, images="8x8", requests=2)
    content = (images.conversations[0][0].prompt.messages or ())[0]["content"]
    assert [part["type"] for part in content] == ["text", "image_url"]


def test_files_are_told_apart_by_their_ending(
    tokenization: ClientTokenization, tmp_path: Path
) -> None:
    lines = tmp_path / "prompts.jsonl"
    lines.write_text('{"prompt": "one", "max_tokens": 7}\n{"prompt": "two"}\n')
    found = made(tokenization, dataset=lines, requests=None)
    assert [item.prompt.max_tokens for (item,) in found.conversations] == [7, 5]
    talk = [{"from": "human", "value": "hello"}, {"from": "gpt", "value": "good day"}] * 2
    share = tmp_path / "share.json"
    share.write_text(json.dumps([{"id": "1", "conversations": talk}]))
    assert [len(one) for one in made(tokenization, dataset=share).conversations] == [1]
    assert [len(one) for one in made(tokenization, dataset=share, turns="5").conversations] == [2]
    with pytest.raises(ConfigError, match="--turns '0'"):
        made(tokenization, dataset=share, turns="0")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"dataset": Path("a"), "trace": Path("b")}, "both set what is sent"),
        ({"dataset": Path("a"), "prefix_tokens": "3"}, "for synthetic prompts"),
        ({"trace": Path("a"), "turns": "3"}, "have one turn each"),
        ({"turns": "3", "kind": "openai-completions"}, "needs a chat endpoint"),
        ({"output_tokens": "0"}, "--output-tokens"),
        ({"think": "1..5"}, "--think 1..5 is a pause between turns; add --turns"),
        ({"prefixes": 4}, "--prefixes 4 needs --prefix-tokens; add it"),
        (
            {"prefixes": 4, "prefix_tokens": "9", "turns": "2"},
            "--prefixes 4: conversations share one system message",
        ),
    ],
)
def test_options_that_contradict_one_another(
    tokenization: ClientTokenization, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        made(tokenization, **options)


def test_outputs_are_counted_after_the_run(tokenization: ClientTokenization) -> None:
    good = stream((5, "text", "the house"), (6, "text", " is"), prompt_tokens_asked=9)
    failed = stream(failure=Failure("connect", "no"), end_ms=1)
    found = counted([good, failed], tokenization, prompts=True)
    assert found[0].client_output_tokens == len(tokenization.encode("the house is"))
    assert found[0].client_prompt_tokens == 9
    assert found[1].client_output_tokens is None


def test_what_is_told_of_a_run_has_no_secrets(tokenization: ClientTokenization) -> None:
    at = endpoint("http://user:hidden1@127.0.0.1:1/v1?key=hidden2", api_key="hidden3")
    words = ["headrace", "bench", "load", "http://user:hidden1@127.0.0.1:1/v1?key=hidden2"]
    words += [
        "-H",
        "x-a: hidden4",
        "--header=x-b:hidden5",
        "-H",
        "x-c=hidden6",
        "--header=x-d=hidden7",
        "--save",
        "/home/somebody/out",
    ]
    words += [
        "--base-url=http://u:hidden1@h",
        "-Hx-e:hidden8",
        "-qHx-f: hidden9",
        "-qH",
        "x:hidden0",
    ]
    words += ["--metrics-path", "/metrics?token=hidden1", "--endpoint", "/v2/chat?sig=hidden2"]
    plain = ["--extra-body", '{"url": "http://h?a"}', "--goodput", "ttft:500 tpot:50", "-m", "H"]
    words += plain
    facts = about_run(
        at,
        made(tokenization),
        command=words,
        load="closed loop of 1",
        seed=3,
        tokenizer="t",
        processes=1,
        definitions="headrace",
        slo=None,
        started=datetime(2026, 1, 2, tzinfo=UTC),
        open_loop=False,
    )
    assert facts["open_loop"] is False
    assert "hidden" not in str(facts)
    assert "somebody" not in str(facts)
    assert facts["endpoint"] == "http://127.0.0.1:1/v1"
    assert "--save out" in str(facts["command"])
    assert shlex.split(str(facts["command"]))[-len(plain) :] == plain
    assert "--metrics-path /metrics --endpoint /v2/chat " in str(facts["command"])
    assert "-Hx-e:********" in shlex.split(str(facts["command"]))
    assert facts["started"] == "2026-01-02T00:00:00+00:00"


async def test_the_only_model_is_taken() -> None:
    async with MockEndpoint(MockSettings(model="one")) as url:
        for base in (url, f"{url}/v1", f"{url}/v1/"):
            assert choose_model(await look(endpoint(base)), None) == "one"
            assert (await look(endpoint(base))).is_headrace
    assert choose_model(Found(("a", "b")), "c") == "c"
    with pytest.raises(UnreachableError, match="2 models are served"):
        choose_model(Found(("a", "b")), None)


async def test_other_names_of_one_model_are_no_choice() -> None:
    body = json.dumps({"data": [{"id": i, "root": r} for i, r in ("ax", "bx", "cy")]}).encode()
    head = b"HTTP/1.1 200 Ok\r\ncontent-length: %d\r\n\r\n" % len(body)
    async with scripted(head + body) as url:
        assert (await look(endpoint(url))).models == ("a", "c")
        assert not (await look(endpoint(url))).is_headrace


async def test_a_gateway_to_ours_and_others_is_not_ours() -> None:
    owners = [{"id": "a", "owned_by": "headrace"}, {"id": "b", "owned_by": "somebody"}]
    body = json.dumps({"data": owners}).encode()
    head = b"HTTP/1.1 200 Ok\r\ncontent-length: %d\r\n\r\n" % len(body)
    async with scripted(head + body) as url:
        assert not (await look(endpoint(url))).is_headrace


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (b"HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n", "HTTP 401.*HEADRACE_BENCH_API_KEY"),
        (b"HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n", "is not known: HTTP 404"),
        (
            b"HTTP/1.1 200 Ok\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>",
            "is text/html, not JSON",
        ),
        (b"HTTP/1.1 200 Ok\r\ncontent-length: 2\r\n\r\n[]", "lists no model"),
    ],
)
async def test_an_endpoint_that_names_no_model(reply: bytes, told: str) -> None:
    async with scripted(reply) as url:
        with pytest.raises(UnreachableError, match=told):
            choose_model(await look(endpoint(url)), None)


def test_replies_are_read_once_and_counted_by_their_size() -> None:
    replies = Replies("openai-chat", 0)
    for index in range(3):
        raw = RawReply(begun_ns=1, end_ns=9, status=200, pieces=((5, b"data: x\n\n"),))
        replies.add(Asked(index=index, intended_ns=0), raw, stream=True, failed=False)
    before = replies.held_bytes
    assert before >= 27
    assert [one.index for one in replies.read(1)] == [2]
    assert replies.held_bytes == before * 2 // 3
    assert [one.index for one in replies.all()] == [0, 1, 2]
    assert replies.held_bytes == 0
    assert replies.late_failures == 3
