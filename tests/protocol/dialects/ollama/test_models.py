"""Lists and descriptions of models."""

from __future__ import annotations

import json

import pytest

from headrace.errors import RequestError
from headrace.protocol.dialects.ollama import models
from tests.protocol.dialects.ollama.samples import assert_as_described


def test_a_list_tells_names_apart_and_stays_the_same() -> None:
    raw = models.write_tags(["gpt-5", "claude"], "2026-11-22T11:00:00Z")
    assert raw == models.write_tags(["gpt-5", "claude"], "2026-11-22T11:00:00Z")
    told = json.loads(raw)
    assert_as_described(told, "ListResponse")
    assert [one["name"] for one in told["models"]] == ["gpt-5", "claude"]
    assert [one["model"] for one in told["models"]] == ["gpt-5", "claude"]
    assert len({one["digest"] for one in told["models"]}) == 2
    assert all(len(one["digest"]) == 64 for one in told["models"])
    assert json.loads(models.write_tags([])) == {"models": []}


def test_a_description() -> None:
    raw = models.write_show("gpt-5", capabilities=("completion", "tools"), context_length=4096)
    told = json.loads(raw)
    assert_as_described(told, "ShowResponse")
    assert told["capabilities"] == ["completion", "tools"]
    architecture = told["model_info"]["general.architecture"]
    assert told["model_info"][f"{architecture}.context_length"] == 4096


@pytest.mark.parametrize("body", [b'{"model":"a"}', b'{"name":"a"}', b'{"model":"a","verbose":1}'])
def test_what_is_to_be_shown(body: bytes) -> None:
    assert models.read_show(body) == "a"


@pytest.mark.parametrize("body", [b"", b"{}", b'{"model":5}', b'{"model":""}'])
def test_what_shows_nothing_is_refused(body: bytes) -> None:
    with pytest.raises(RequestError):
        models.read_show(body)


def test_versions_and_names_that_are_not_there() -> None:
    assert json.loads(models.write_version("0.1.0")) == {"version": "0.1.0"}
    assert str(models.no_model("x", ["a", "b"])) == "model 'x' not found; served: a, b"
