"""Ids in the bytes of answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.gateway.serving.told_ids import (
    MOST_ITEMS,
    ToldIds,
    ids_in_answer,
    ids_in_events,
)


def event(value: dict[str, Any]) -> bytes:
    return f"event: {value['type']}\ndata: {json.dumps(value)}\n\n".encode()


def test_of_an_answer_its_own_and_its_items_each_once() -> None:
    shell = {"type": "shell_call", "id": "sh", "environment": {"container_id": "c2"}}
    items = [{"id": "a", "container_id": "c1"}, {"id": "a"}, {"type": "x"}, shell]
    told = ids_in_answer(json.dumps({"id": "r", "output": items, "x": 1}).encode())
    assert told == (("r", "a", "sh"), ("c1", "c2"))
    many = [{"id": f"i{at}"} for at in range(MOST_ITEMS + 1)]
    told = ids_in_answer(json.dumps({"id": "r", "output": many}).encode())
    assert len(told.stored) == MOST_ITEMS + 1


def test_of_events_those_with_an_answer_alone() -> None:
    began = event({"type": "response.created", "response": {"id": "r", "output": []}})
    delta = event({"type": "response.output_text.delta", "item_id": "m", "delta": "x"})
    words = event({"type": "response.output_text.delta", "delta": "response.completed"})
    ended = event({"type": "response.completed", "response": {"id": "r", "output": [{"id": "m"}]}})
    assert ids_in_events(began + delta) == (("r",), ())
    assert ids_in_events(delta) == ids_in_events(words) == ToldIds()
    assert ids_in_events(words + ended) == (("r", "m"), ())
    assert ids_in_events(ended.replace(b"\n", b"\r\n")) == (("r", "m"), ())


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"id": 7, "output": null}', b'{"output": [{"id": {}}]}', b"\xff", b"{"]
)
def test_none_where_there_are_none(body: bytes) -> None:
    assert ids_in_answer(body) == ToldIds()
    assert ids_in_events(b"data: response.completed " + body + b"\n\n") == ToldIds()
