"""The first look at an endpoint: which models it has, and what a wrong name is answered."""

from __future__ import annotations

import asyncio
import json

import pytest

from headrace.bench.client.endpoints import Endpoint, EndpointKind
from headrace.bench.load.probe import Found, UnreachableError, check_model, choose_model, look
from tests.bench.misbehaving import Answer, Request, always, good_reply, misbehaving, models, whole

ABSENT = b'{"error":{"message":"The model `nope` does not exist.","code":"model_not_found"}}'


def checked(
    model: str,
    listed: tuple[str, ...],
    post: Answer,
    kind: EndpointKind = "openai-chat",
) -> list[Request]:
    """The requests beyond the list that a look with this model sends."""
    sent: list[Request] = []

    async def answer(request: Request, writer: asyncio.StreamWriter) -> bool:
        sent.append(request)
        return await post(request, writer)

    async def run(url: str) -> None:
        endpoint = Endpoint(kind=kind, base_url=url, model=model)
        await check_model(endpoint, await look(endpoint))

    with misbehaving(answer, get=always(models(*listed))) as url:
        asyncio.run(run(url))
    return sent


@pytest.mark.parametrize("status", [400, 404, 422])
def test_a_model_that_the_server_lacks_is_an_error_with_those_it_lists(status: int) -> None:
    with pytest.raises(UnreachableError) as found:
        checked("nope", ("small", "large"), always(whole(status, ABSENT)))
    said = str(found.value)
    assert said.startswith(f"--model 'nope' cannot be measured: HTTP {status}")
    assert "The model `nope` does not exist." in said
    assert said.endswith("; the server lists small, large")
    assert "?:" not in said


def test_a_long_list_is_cut() -> None:
    with pytest.raises(UnreachableError) as found:
        checked("nope", tuple(f"m{at}" for at in range(14)), always(whole(404, ABSENT)))
    assert str(found.value).endswith("m8, m9 and 4 more")


@pytest.mark.parametrize(
    ("model", "listed"), [("small", ("small",)), ("llama3", ("llama3:latest",)), ("any", ())]
)
def test_nothing_is_sent_for_a_model_that_is_listed_or_where_none_is(
    model: str, listed: tuple[str, ...]
) -> None:
    assert checked(model, listed, always(whole(404, ABSENT))) == []


def test_a_model_that_works_without_being_listed_is_measured() -> None:
    sent = checked("alias", ("small",), always(good_reply()))
    assert [json.loads(request.body)["model"] for request in sent] == ["alias"]


def test_a_server_that_is_busy_is_not_taken_for_one_without_the_model() -> None:
    assert len(checked("alias", ("small",), always(whole(429, b"")))) == 1
    assert len(checked("alias", ("small",), always(whole(503, b"")))) == 1


def test_a_field_that_the_endpoint_refuses_is_named_with_its_flag() -> None:
    refused = b'{"error":{"message":"Unsupported parameter: max_tokens"}}'
    with pytest.raises(UnreachableError, match="measure it with --max-tokens-field"):
        checked("o-mini", ("small",), always(whole(400, refused)))


def test_embeddings_are_tried_with_an_input() -> None:
    sent = checked("alias", ("small",), always(whole(200, b"{}")), "openai-embeddings")
    assert [request.path for request in sent] == ["/v1/embeddings"]
    assert json.loads(sent[0].body)["input"]


def test_several_models_need_a_name_by_the_flag_of_who_asks() -> None:
    with pytest.raises(UnreachableError, match="give one as --peer-model: a, b"):
        choose_model(Found(("a", "b")), None, "--peer-model")
