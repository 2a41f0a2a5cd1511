"""JSONL files, OpenAI's batches and ShareGPT's format; what is refused says where."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from headrace.bench.prompts.files import has_prompts, read_prompts
from headrace.bench.prompts.options import RequestOptions
from headrace.bench.prompts.sharegpt import first_turns, read_sharegpt, sessions
from headrace.bench.prompts.think import ThinkTime
from headrace.bench.workload import AWAITED_ANSWER
from headrace.errors import ConfigError
from tests.bench.prompts.tokenizers import OfWords, shipped


def lines(folder: Path, *written: Any) -> Path:
    path = folder / "prompts.jsonl"
    texts = [one if isinstance(one, str) else json.dumps(one) for one in written]
    path.write_text("\n".join(texts), encoding="utf-8")
    return path


def test_every_kind_of_prompt(tmp_path: Path) -> None:
    conversation = [{"role": "user", "content": "hello"}]
    path = lines(
        tmp_path,
        {"prompt": "one", "max_tokens": 5, "note": "mine"},
        "",
        {"prompt": [1, 2, 3], "timestamp": 1500},
        {"messages": conversation, "max_completion_tokens": 6, "ignore_eos": True},
        {"input": ["a", "b"]},
        {"prompt": "two", "output_tokens": 7, "extra_body": {"top_p": 0.5}, "min_tokens": 2},
    )
    made = read_prompts(path, output_tokens=99, options=RequestOptions(extra_body={"seed": 1}))
    text, ids, chat, inputs, last = (one.prompt for one in made)
    assert (text.text, text.max_tokens, text.extra_body) == ("one", 5, {"seed": 1})
    assert (ids.token_ids, ids.max_tokens, made.items[1].at_ns) == ((1, 2, 3), 99, None)
    assert (chat.messages, chat.max_tokens, chat.ignore_eos) == (tuple(conversation), 6, True)
    assert (inputs.inputs, inputs.max_tokens, inputs.stream) == (("a", "b"), None, False)
    assert (last.max_tokens, last.min_tokens, last.extra_body["top_p"]) == (7, 2, 0.5)
    assert [one.output_tokens_asked for one in made] == [None, None, 6, None, 7]
    assert made.notes == (
        "prompts.jsonl: these fields are not sent: note",
        "prompts.jsonl: the timestamp of 1 lines is not used; give the file as --trace to "
        "send them at those times",
    )
    assert len(read_prompts(path, limit=2)) == 2
    assert read_prompts(path).fingerprint == read_prompts(path).fingerprint != made.fingerprint


def test_only_a_trace_of_prompts_has_times(tmp_path: Path) -> None:
    path = lines(
        tmp_path, {"prompt": "a", "timestamp": 1500}, {"body": {"prompt": "b"}, "timestamp": 1600}
    )
    assert [one.at_ns for one in read_prompts(path)] == [None, None]
    timed = read_prompts(path, timed=True)
    assert [one.at_ns for one in timed] == [1_500_000_000, 1_600_000_000]
    assert timed.notes == ()
    assert has_prompts(path)
    # Times of any kind in a file that is no trace are nobody's business.
    path = lines(tmp_path, {"prompt": "a", "timestamp": "2026-01-01T00:00:00Z"})
    assert read_prompts(path).items[0].at_ns is None
    for written in ("2026-01-01", 1.5, 10**18, None):
        path = lines(tmp_path, {"prompt": "a", "timestamp": written})
        with pytest.raises(ConfigError, match="timestamp"):
            read_prompts(path, timed=True)
    assert not has_prompts(lines(tmp_path, {"timestamp": 1, "input_length": 3}))
    assert not has_prompts(tmp_path / "trace.csv")


def test_openais_batches(tmp_path: Path) -> None:
    body = {
        "model": "other",
        "messages": [{"role": "user", "content": "x"}],
        "max_tokens": 4,
        "temperature": 0.5,
        "stream": False,
    }
    path = lines(
        tmp_path,
        {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": body},
    )
    (item,) = read_prompts(path)
    assert item.prompt.messages == ({"role": "user", "content": "x"},)
    assert (item.prompt.max_tokens, item.prompt.stream) == (4, True)
    assert item.prompt.extra_body == {"temperature": 0.5}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "is not JSON"),
        ("[1]", "not a JSON object"),
        ('{"prompt": NaN}', "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ({"text": "x"}, "has no prompt"),
        ({"prompt": "x", "messages": []}, "prompt and messages"),
        ({"prompt": ["a"]}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"messages": []}, "messages"),
        ({"messages": [{"content": "x"}]}, "role"),
        ({"input": [1]}, "input"),
        ({"prompt": "x", "max_tokens": 0}, "max_tokens 0"),
        ({"prompt": "x", "max_tokens": True}, "max_tokens True"),
        ({"prompt": "x", "ignore_eos": 1}, "ignore_eos 1"),
        ({"prompt": "x", "extra_body": []}, "extra_body"),
        ({"body": 3}, "body 3"),
    ],
)
def test_what_is_refused(tmp_path: Path, line: Any, said: str) -> None:
    path = lines(tmp_path, {"prompt": "fine"}, line)
    with pytest.raises(ConfigError) as caught:
        read_prompts(path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert said in str(caught.value)
    assert len(str(caught.value)) < 600


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name a file"):
        read_prompts(tmp_path / "absent.jsonl")
    (tmp_path / "latin").write_bytes(b'{"prompt": "\xe9"}')
    with pytest.raises(ConfigError, match="UTF-8"):
        read_prompts(tmp_path / "latin")
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ConfigError, match="no prompts"):
        read_prompts(tmp_path / "empty")


def said(*pairs: tuple[str, str]) -> dict[str, Any]:
    return {"conversations": [{"from": who, "value": value} for who, value in pairs]}


def sharegpt(folder: Path, found: Any) -> Path:
    path = folder / "sharegpt.json"
    path.write_text(json.dumps(found), encoding="utf-8")
    return path


def test_conversations(tmp_path: Path) -> None:
    data = read_sharegpt(
        sharegpt(
            tmp_path,
            [
                said(("gpt", "orphan"), ("human", "a"), ("gpt", "b"), ("human", "c"), ("gpt", "d")),
                said(("system", "be kind"), ("user", "e"), ("user", "f"), ("chatgpt", "g")),
                said(("human", "no answer")),
                said(),
            ],
        )
    )
    assert [one.turns for one in data.conversations] == [(("a", "b"), ("c", "d")), (("f", "g"),)]
    assert [one.system for one in data.conversations] == ["", "be kind"]
    assert data.notes == ("sharegpt.json: 2 of 4 conversations have no question and answer",)


def test_sessions_carry_places_for_answers(tmp_path: Path) -> None:
    talk = said(
        ("system", "s"), *[(who, f"{who} {at}") for at in range(3) for who in ("human", "gpt")]
    )
    data = read_sharegpt(sharegpt(tmp_path, [talk, talk]))
    think = ThinkTime(low_s=1, high_s=1)
    made = sessions(data, OfWords(), random.Random(1), think=think, max_turns=2)
    assert [(one.session, one.turn) for one in made] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [one.think_ns for one in made] == [0, 1_000_000_000] * 2
    assert [message["content"] for message in made.items[1].prompt.messages or ()] == [
        "s",
        "human 0",
        AWAITED_ANSWER,
        "human 1",
    ]
    assert made.items[1].output_tokens_asked == len(OfWords().encode("gpt 1"))


@pytest.mark.parametrize(
    ("found", "said_of_it"),
    [
        ({}, "not a list of conversations"),
        ([], "no conversation has"),
        ([{}], "conversation 0: has no list"),
        ([said(("human", "a"), ("robot", "b"))], "message 1: from 'robot'"),
        ([{"conversations": [{"from": "human", "value": 3}]}], "value 3"),
        ([{"conversations": ["x"]}], "message 0"),
    ],
)
def test_damaged_conversations(tmp_path: Path, found: Any, said_of_it: str) -> None:
    path = sharegpt(tmp_path, found)
    with pytest.raises(ConfigError) as caught:
        read_sharegpt(path)
    assert str(caught.value).startswith(str(path))
    assert said_of_it in str(caught.value)


def test_a_real_file(shared_assets: Path) -> None:
    path = shared_assets / "prompts" / "sharegpt-format" / "dummy_conversation.json"
    data = read_sharegpt(path)
    assert (len(data.conversations), data.notes) == (500, ())
    made = first_turns(data, shipped(), random.Random(1), limit=100, max_prompt_tokens=6)
    assert len(made) == 100
    assert all(len(shipped().encode(one.prompt.text or "")) <= 6 for one in made)
    assert "over 6 tokens skipped" in made.notes[0]
    again = first_turns(data, shipped(), random.Random(1), limit=100, max_prompt_tokens=6)
    assert made.fingerprint == again.fingerprint
    everything = sessions(data, shipped(), random.Random(2))
    assert len(everything) == 1000
    assert {one.session for one in everything} == set(range(500))
    with pytest.raises(ConfigError, match="allow longer ones"):
        first_turns(data, shipped(), random.Random(1), max_prompt_tokens=0)


def test_real_prompts(shared_assets: Path) -> None:
    made = read_prompts(shared_assets / "prompts" / "human-eval" / "example_problem.jsonl")
    assert "def " in (made.items[0].prompt.text or "")
    assert "task_id" in made.notes[0]
    gsm8k = shared_assets / "prompts" / "gsm8k" / "test.jsonl"
    with pytest.raises(ConfigError, match=r"jsonl:1: has no prompt"):
        read_prompts(gsm8k)
