"""Names that no model has are refused before anything is done with them."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.config.load import nearest
from headrace.errors import RequestError
from headrace.gateway.routing.model_name import MOST_CHARACTERS, check_name, plain_name, plain_names
from headrace.gateway.routing.preferences import read_wanted
from headrace.gateway.serving.entry import MOST_ERROR_CHARACTERS, Entry
from tests.gateway.accounts.parts import KEY, accounts_of, hierarchy
from tests.gateway.harness import ask, gateway

LONG = "p/" + "z" * MOST_CHARACTERS
SETTINGS: dict[str, Any] = {
    "providers": {"p": "http://127.0.0.1:9/v1"},
    "models": {"chat": ["p/m"]},
    "pass_unknown_models": True,
}
TURN = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}


@pytest.mark.parametrize(
    "name", ["m", "p/a b", "p/m:7b", "hf/org/model", "vllm//models/m", "p/./m.gguf", "p/m..q4",
             "p/" + "z" * (MOST_CHARACTERS - 2), "p/模型"],
)  # fmt: skip
def test_names_of_models(name: str) -> None:
    check_name(name, "model")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (LONG, f"has {len(LONG)} characters; at most {MOST_CHARACTERS} are allowed"),
        ("p/m ", "blanks"), (" p/m", "blanks"), ("p/m\n", "blanks"), ("\u00a0p/m", "blanks"),
        ("p/m\u200b", "invisible"), ("p/\x00m", "invisible"), ("p/../m", "`..`"),
        ("..", "`..`"), ("p/m/..", "`..`"),
    ],
)  # fmt: skip
def test_what_is_no_name(name: str, says: str) -> None:
    with pytest.raises(RequestError) as refused:
        check_name(name, "models[3]")
    assert str(refused.value).startswith("models[3]: ") and says in str(refused.value)
    assert len(str(refused.value)) < 500 and refused.value.param == "models[3]"


def test_every_name_of_a_list_is_looked_at() -> None:
    with pytest.raises(RequestError, match=r"^models\[1\]: "):
        read_wanted("m", {"models": ["a", LONG]})


@pytest.mark.parametrize("field", ["order", "only", "ignore", "quantizations"])
def test_a_list_of_providers_has_an_end(field: str) -> None:
    assert read_wanted("m", {"provider": {field: ["a"] * 256}})
    with pytest.raises(RequestError, match=rf"provider\.{field}: .*256"):
        read_wanted("m", {"provider": {field: ["a"] * 257}})


def test_spellings_of_a_target_are_one() -> None:
    spellings = ("p/m", "P/M", "p//m", "p/./m", "p/m/", "p/ m", "p/m:latest")
    assert {plain_name(one) for one in spellings} == {"p/m"}
    assert list(plain_names("p/M:7b:online")) == ["p/m:7b:online", "p/m:7b", "p/m"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"model": LONG, **TURN}),
        ("/v1/chat/completions", {"model": "chat", "models": [LONG], **TURN}),
        ("/v1/messages", {"model": LONG, **TURN}),
        ("/v1/messages/count_tokens", {"model": LONG, **TURN}),
        ("/v1/responses", {"model": LONG, "input": "Hi"}),
        ("/v1/completions", {"model": LONG, "prompt": "Hi"}),
        ("/v1/embeddings", {"model": LONG, "input": "Hi"}),
        ("/v1/embeddings", {"model": "chat", "models": [LONG], "input": "Hi"}),
        ("/api/chat", {"model": LONG, **TURN}),
        ("/api/chat", {"model": LONG}),
        ("/api/generate", {"model": LONG, "prompt": "Hi"}),
        ("/api/embed", {"model": LONG, "input": "Hi"}),
        ("/api/show", {"model": LONG}),
    ],
)
async def test_no_path_takes_or_keeps_a_name_that_is_too_long(path: str, body: Any) -> None:
    entries: list[Entry] = []
    accounts = accounts_of(hierarchy())
    await accounts.start()
    built = gateway(SETTINGS, entries, accounts=accounts)
    told = await ask(built.app, body, path=path, headers={"authorization": f"Bearer {KEY}"})
    built.close()
    assert told.status == 400 and f"{len(LONG)} characters".encode() in told.body
    assert len(told.body) < 500
    assert all(LONG not in repr(one) for one in entries)


async def test_an_error_that_repeats_the_request_is_cut_in_its_line() -> None:
    entries: list[Entry] = []
    built = gateway(SETTINGS, entries)
    body = {"model": "chat", "provider": {"x" * 100_000: 1}, **TURN}
    assert (await ask(built.app, body)).status == 400
    built.close()
    (entry,) = entries
    assert entry.error.startswith("provider") and len(entry.error) == MOST_ERROR_CHARACTERS


def test_a_long_name_is_compared_with_nothing() -> None:
    assert "'chat'" in nearest("chatt", ["chat"])
    assert nearest("c" * 65, ["c" * 64]) == nearest("c" * 64, ["c" * 65]) == ""
