"""/tokenize, /detokenize and the list of models."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.server.model import served
from headrace.server.replies.long_reply import PART_ITEMS
from tests.server.chat.test_chat import HELLO, HELLO_IDS
from tests.server.conftest import MODEL, Running
from tests.server.mock_engine import MAX_MODEL_LEN, VOCAB_SIZE, MockEngine, says
from tests.text.test_library import EXPLODES, EXPLODING, write_and_load
from tests.tiny import IM_END, NUM_TOKENS

Start = Callable[..., Running]


def tokenize(server: Running, **fields: Any) -> Any:
    reply = server.post("/tokenize", fields)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_a_text(start: Start) -> None:
    server = start(MockEngine(says("x")))
    assert tokenize(server, model=MODEL, prompt="水<|im_end|>") == {
        "count": 4,
        "max_model_len": MAX_MODEL_LEN,
        "tokens": [*"水".encode(), IM_END],
        "token_strs": None,
    }
    named = tokenize(server, prompt="a水<|im_end|>", return_token_strs=True)
    assert named["token_strs"] == ["a", "�", "�", "�", "<|im_end|>"]
    assert tokenize(server, prompt="")["tokens"] == []


def test_llama_servers_fields_tokenize_and_back(start: Start) -> None:
    server = start(MockEngine(says("x")))
    text = "水<|im_end|>"
    ids = [*"水".encode(), IM_END]
    told = tokenize(server, content=text, add_special=False, parse_special=True)
    assert told["tokens"] == ids
    assert server.post("/detokenize", {"tokens": ids}).json() == {"prompt": text, "content": text}
    for fields, param, code in (
        ({}, "prompt", "missing_field"),
        ({"content": "x", "prompt": "x"}, "content", "invalid_value"),
        ({"content": "x", "messages": HELLO}, "content", "invalid_value"),
        ({"content": "x", "with_pieces": True}, "with_pieces", "unsupported"),
        ({"content": "x", "parse_special": False}, "parse_special", "unsupported"),
        ({"content": ["x", 5]}, "content", None),
    ):
        reply = server.post("/tokenize", fields)
        error = reply.json()["error"]
        assert (reply.status_code, error["param"], error["code"]) == (400, param, code), fields
    assert (
        "return_token_strs"
        in server.post("/tokenize", {"content": "x", "with_pieces": True}).json()["error"][
            "message"
        ]
    )


def test_a_conversation_is_what_generation_would_take(start: Start) -> None:
    engine = MockEngine(says("x"))
    server = start(engine)
    assert tokenize(server, messages=HELLO)["tokens"] == HELLO_IDS
    for fields in (
        {},
        {"add_generation_prompt": False},
        {"continue_final_message": True},
        {"chat_template_kwargs": {"extra": 1}},
        {"add_special_tokens": True},
    ):
        ids = tokenize(server, messages=HELLO, **fields)["tokens"]
        server.chat(**fields)
        assert engine.submitted[-1].prompt_token_ids == ids


def test_a_long_text(start: Start) -> None:
    server = start(MockEngine(says("x")))
    assert tokenize(server, prompt="y" * 50_000)["count"] == 50_000


@pytest.mark.long
def test_a_text_the_tokenizer_fails_on_is_a_400_that_says_what_of_it(
    start: Start, tmp_path: Path
) -> None:
    server = start(MockEngine(says("x")), tokenizer=write_and_load(tmp_path, EXPLODING))
    chat = {"messages": [{"role": "user", "content": EXPLODES}]}
    for path, body, param in (
        ("/tokenize", {"prompt": EXPLODES}, "prompt"),
        ("/tokenize", chat, "messages"),
        ("/v1/completions", {"prompt": ["a", EXPLODES]}, "prompt[1]"),
        ("/v1/completions", {"prompt": "a", "bad_words": [EXPLODES]}, "bad_words[0]"),
        ("/v1/chat/completions", chat, "messages"),
    ):
        reply = server.post(path, body)
        error = reply.json()["error"]
        assert (reply.status_code, error["code"]) == (400, "text_cannot_be_tokenized"), path
        assert error["param"] == param
        assert error["message"].startswith(f"{param}: this text of ")
        assert "Its longest run of characters without white space has 1" in error["message"]
    assert tokenize(server, prompt="hi")["count"] == 2


@pytest.mark.parametrize("count", [PART_ITEMS, PART_ITEMS + 1, 3 * PART_ITEMS + 7])
def test_a_long_reply_is_the_same_in_parts(start: Start, count: int) -> None:
    server = start(MockEngine(says("x")))
    text = ('a"水\n\\' * count)[: count - 10] + "<|im_end|>"
    ids = [*text.removesuffix("<|im_end|>").encode(), IM_END]
    assert len(ids) > PART_ITEMS
    reply = server.post("/tokenize", {"prompt": text, "return_token_strs": True})
    assert reply.headers["content-type"] == "application/json"
    names = [bytes([token_id]).decode("utf-8", "replace") for token_id in ids[:-1]]
    assert reply.json() == {
        "count": len(ids),
        "max_model_len": MAX_MODEL_LEN,
        "tokens": ids,
        "token_strs": [*names, "<|im_end|>"],
    }
    plain = server.post("/tokenize", {"prompt": text})
    assert plain.json()["tokens"] == ids and plain.json()["token_strs"] is None
    back = server.post("/detokenize", {"tokens": ids})
    assert back.headers["content-type"] == "application/json"
    assert back.json() == {"prompt": text, "content": text}


@pytest.mark.long
def test_what_has_too_many_tokens_is_refused(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "MIN_TEXT_TOKENS", 300_000)
    server = start(MockEngine(says("x")))
    words = "some words " * 40_000
    long = {"messages": [{"role": "user", "content": words}]}
    for path, body, param in (
        ("/tokenize", {"prompt": words}, "prompt"),
        ("/tokenize", long, "messages"),
        ("/v1/completions", {"prompt": ["x", words], "truncate_prompt_tokens": 9}, "prompt[1]"),
        ("/v1/chat/completions", {**long, "truncate_prompt_tokens": 9}, "messages"),
    ):
        reply = server.post(path, body)
        error = reply.json()["error"]
        assert (reply.status_code, error["code"], error["param"]) == (400, "text_too_long", param)
        counted = re.search(r"at least (\d+) tokens; at most 300000 ", error["message"])
        assert counted and 300_000 < int(counted[1]) < 441_000, error["message"]
    refused = server.post("/detokenize", {"tokens": [65] * 300_001}).json()["error"]
    assert (refused["code"], refused["param"]) == ("text_too_long", "tokens")
    assert "300001 ids; at most 300000" in refused["message"]
    assert server.post("/detokenize", {"tokens": [65] * 300_000}).json() == {
        "prompt": "A" * 300_000,
        "content": "A" * 300_000,
    }
    assert tokenize(server, prompt=words[:299_000])["count"] == 299_000


def test_a_stretch_without_a_place_to_cut_is_refused_where_it_is_too_long(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "MIN_TEXT_TOKENS", 300_000)
    error = (
        start(MockEngine(says("x"))).post("/tokenize", {"prompt": "水" * 270_000}).json()["error"]
    )
    assert (error["code"], error["param"]) == ("text_too_long", "prompt")
    assert "more than 300000 bytes in a row" in error["message"]


def test_back_to_text(start: Start) -> None:
    server = start(MockEngine(says("x")))
    text = "größe <|im_end|> 水😀\n"
    ids = tokenize(server, prompt=text)["tokens"]
    for tokens, told in ((ids, text), ([], ""), ([*b"a", 0xE6], "a�")):
        reply = server.post("/detokenize", {"tokens": tokens})
        assert reply.json() == {"prompt": told, "content": told}


def test_ids_that_do_not_exist(start: Start) -> None:
    server = start(MockEngine(says("x")))
    assert NUM_TOKENS < VOCAB_SIZE
    reply = server.post("/detokenize", {"tokens": [1, VOCAB_SIZE]})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "tokens[1]"


def test_models(start: Start) -> None:
    server = start(MockEngine(says("x")))
    listed = server.client.get("/v1/models").json()
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == [MODEL, "alias"]
    one = server.client.get(f"/v1/models/{MODEL}").json()
    assert one == listed["data"][0]
    assert one["object"] == "model"
    assert one["max_model_len"] == MAX_MODEL_LEN
    assert isinstance(one["created"], int)
    assert one["owned_by"]
    assert [model.id for model in server.openai.models.list()] == [MODEL, "alias"]
    assert server.openai.models.retrieve("alias").id == "alias"
    missing = server.client.get("/v1/models/gpt-9")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"


def test_names_may_have_slashes(start: Start) -> None:
    server = start(MockEngine(says("x")), names=("org/model:tag",))
    assert server.client.get("/v1/models/org/model:tag").json()["id"] == "org/model:tag"
    assert server.openai.models.retrieve("org/model:tag").id == "org/model:tag"
    assert server.complete(model="org/model:tag")["model"] == "org/model:tag"
