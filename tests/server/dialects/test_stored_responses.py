"""Responses that are stored: continued, found, listed and deleted; and what is not stored."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from headrace.config import ServerConfig
from headrace.engine.messages import Output
from tests.server.conftest import MODEL, Running
from tests.server.dialects.test_responses import Start, answer, prompts, refused, roomy
from tests.server.mock_engine import MockEngine, output, says

KEYS: dict[str, Any] = {"api_key": ("one", "two")}


def test_the_next_turn_begins_with_the_prompt_and_the_answer_of_the_last(start: Start) -> None:
    server = start(roomy(MockEngine(says("hello"))))
    first = answer(server, input="one")
    second = answer(server, input="two", previous_response_id=first["id"])
    third = answer(
        server,
        input=[{"role": "user", "content": [{"type": "input_text", "text": "three"}]}],
        previous_response_id=second["id"],
    )
    assert second["previous_response_id"] == first["id"]
    begun = prompts(server)
    assert begun[1].startswith(f"{begun[0]}hello")
    assert begun[2].startswith(f"{begun[1]}hello")
    # The whole conversation sent at once gives the same prompt.
    answer(
        server,
        input=[
            {"role": "user", "content": "one"},
            first["output"][0],
            {"role": "user", "content": "two"},
            second["output"][0],
            {"role": "user", "content": "three"},
        ],
    )
    assert prompts(server)[3] == begun[2]
    assert third["output"][0]["content"][0]["text"] == "hello"


def test_instructions_are_of_one_response(start: Start) -> None:
    server = start(roomy(MockEngine(says("hello"))))
    first = answer(server, input="one", instructions="Be brief.")
    second = answer(server, input="two", previous_response_id=first["id"])
    assert "Be brief." in prompts(server)[0]
    assert "Be brief." not in prompts(server)[1]
    assert second["instructions"] is None


def test_a_response_that_is_not_stored_cannot_be_continued_or_found(start: Start) -> None:
    server = start(MockEngine(says("hello")))
    told = answer(server, store=False)
    assert told["store"] is False
    error = refused(server, previous_response_id=told["id"])
    assert (error["code"], error["param"]) == (
        "previous_response_not_found", "previous_response_id",
    )  # fmt: skip
    assert server.client.get(f"/v1/responses/{told['id']}").status_code == 404


def test_a_server_that_stores_nothing_says_so(start: Start) -> None:
    server = start(MockEngine(says("hello")), config=ServerConfig(max_stored_responses=0))
    told = answer(server)
    assert told["store"] is False
    assert server.client.get(f"/v1/responses/{told['id']}").status_code == 404


def test_another_key_finds_nothing(start: Start) -> None:
    server = start(MockEngine(says("hello")), config=ServerConfig(**KEYS))
    one, two = (
        openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)
        for key in ("one", "two")
    )
    id = one.responses.create(model=MODEL, input="x").id
    assert one.responses.retrieve(id).id == id
    for work in (
        lambda: two.responses.retrieve(id),
        lambda: two.responses.delete(id),
        lambda: two.responses.cancel(id),
        lambda: two.responses.input_items.list(id),
    ):
        with pytest.raises(openai.NotFoundError):
            work()
    with pytest.raises(openai.BadRequestError, match="not found"):
        two.responses.create(model=MODEL, input="x", previous_response_id=id)
    assert one.responses.retrieve(id).id == id


def test_deleting_forgets_a_response_and_not_what_continues_it(start: Start) -> None:
    server = start(roomy(MockEngine(says("hello"))))
    first = answer(server, input="one")["id"]
    second = answer(server, input="two", previous_response_id=first)["id"]
    server.openai.responses.delete(first)
    for work in (server.openai.responses.retrieve, server.openai.responses.delete):
        with pytest.raises(openai.NotFoundError):
            work(first)
    answer(server, input="three", previous_response_id=second)
    assert "one" in prompts(server)[-1]


def test_input_items_are_listed_in_pages(start: Start) -> None:
    server = start(roomy(MockEngine(says("hello"))))
    first = answer(server, input="one")["id"]
    items = [{"role": "user", "content": f"two {number}"} for number in range(3)]
    second = answer(server, input=items, previous_response_id=first)["id"]
    listed: list[Any] = [
        item
        for page in server.openai.responses.input_items.list(
            second, limit=2, order="asc"
        ).iter_pages()
        for item in page.data
    ]
    texts = [item.content[0].text for item in listed]
    assert texts == ["one", "hello", "two 0", "two 1", "two 2"]
    ids = [item.id for item in listed]
    assert len(set(ids)) == 5
    newest = server.openai.responses.input_items.list(second, limit=1)
    assert newest.data[0].id == ids[-1]
    assert newest.has_more
    path = f"/v1/responses/{second}/input_items"
    for query in ("limit=0", "limit=101", "limit=x", "order=up", "after=msg_0"):
        assert server.client.get(f"{path}?{query}").status_code == 400


def test_two_turns_may_continue_one_response_at_once(start: Start) -> None:
    server = start(roomy(MockEngine(says("hello", delay_s=0.005))))
    first = answer(server, input="one")["id"]
    with ThreadPoolExecutor(8) as threads:
        replies = list(
            threads.map(
                lambda number: answer(server, input=f"turn {number}", previous_response_id=first)[
                    "id"
                ],
                range(8),
            )
        )
    assert len(set(replies)) == 8
    for number, id in enumerate(replies):
        answer(server, input="on", previous_response_id=id)
        last = prompts(server)[-1]
        assert f"turn {number}" in last
        assert last.count("turn") == 1


def test_hostile_ids_are_not_found(start: Start) -> None:
    server = start(MockEngine(says("hello")))
    answer(server)
    for id in ("x' OR '1'='1", "%00", "..%2f..%2fetc", "resp_" + "a" * 5000, "%ed%a0%80"):
        reply = server.client.get(f"/v1/responses/{id}")
        assert reply.status_code == 404, id
        assert len(reply.content) < 3000
    for id in ("x' OR '1'='1", "\x00", "resp_" + "a" * 5000):
        assert refused(server, previous_response_id=id)["code"] == "previous_response_not_found"


def test_a_client_that_leaves_takes_its_request_along_and_nothing_is_stored(start: Start) -> None:
    server = start(roomy(MockEngine(says("hello" * 20, delay_s=0.02))))
    first = answer(server, input="one", max_output_tokens=2)["id"]
    with server.openai.responses.create(
        model=MODEL, input="two", previous_response_id=first, stream=True
    ) as stream:
        begun = next(iter(stream))
    assert begun.type == "response.created"
    server.engine.ended.clear()
    assert server.engine.ended.wait(5) or server.engine.cancelled
    assert server.client.get(f"/v1/responses/{begun.response.id}").status_code == 404
    # What it continued is free again: deleting it leaves nothing.
    server.openai.responses.delete(first)
    store = server.state.responses_store
    rows = store._thread.submit(
        lambda: store._rows._connection.execute("SELECT count(*) FROM responses").fetchone()
    ).result(5)
    assert rows == (0,)


def test_stored_responses_are_found_while_there_is_no_model_and_not_cancelled(
    start: Start,
) -> None:
    server = start(MockEngine(says("hello")))
    id = answer(server)["id"]
    with pytest.raises(openai.BadRequestError, match="only background responses"):
        server.openai.responses.cancel(id)
    reply = server.client.get(f"/v1/responses/{id}?stream=true")
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "stream")
    unloaded = start(MockEngine(says("hello")), loaded=False)
    assert unloaded.client.get(f"/v1/responses/{id}").status_code == 404
    assert unloaded.post("/v1/responses", {"model": MODEL, "input": "x"}).status_code == 503


def _ends(server: Running, **fields: Any) -> list[Any]:
    """The ends of an answer, whole and streamed."""
    whole = server.post("/v1/responses", {"model": MODEL, "input": "x", **fields})
    assert len(whole.content) == int(whole.headers["content-length"])
    stream = server.openai.responses.create(model=MODEL, input="x", stream=True, **fields)
    last = list(stream)[-1]
    assert last.type == "response.completed"
    return [whole.json(), last.response.to_dict()]


def test_a_response_that_is_too_large_to_be_stored_says_so(start: Start, caplog: Any) -> None:
    server = start(MockEngine(says("hello")), config=ServerConfig(max_stored_response_bytes=4000))
    for told in _ends(server):
        assert told["store"] is True
        assert server.client.get(f"/v1/responses/{told['id']}").json() == told
    for told in _ends(server, metadata={str(n): "x" * 500 for n in range(8)}):
        assert (told["store"], told["output"][0]["content"][0]["text"]) == (False, "hello")
        assert server.client.get(f"/v1/responses/{told['id']}").status_code == 404
        assert f"{told['id']} was not stored" in caplog.text


def test_a_response_says_that_the_database_failed(start: Start, caplog: Any) -> None:
    server = start(MockEngine(says("hello")))
    assert [told["store"] for told in _ends(server)] == [True, True]
    store = server.state.responses_store
    store._thread.submit(lambda: store._rows._connection.execute("DROP TABLE responses")).result(5)
    for told in _ends(server):
        assert told["store"] is False
    assert "the database failed: no such table: responses" in caplog.text


def test_a_stream_that_failed_is_not_stored_and_says_so(start: Start) -> None:
    async def gives_up(submit: Any) -> Any:
        yield output(submit, [*b"ab"])
        yield Output(submit.request_id, [], finish_reason="error", error="block 7 is damaged")

    server = start(MockEngine(gives_up))
    events = list(server.openai.responses.create(model=MODEL, input="x", stream=True))
    last = events[-1]
    assert last.type == "response.failed"
    assert last.response.to_dict()["store"] is False
    assert server.client.get(f"/v1/responses/{last.response.id}").status_code == 404
