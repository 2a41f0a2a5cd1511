"""Names that are there twice, found in time that grows with the object alone."""

from __future__ import annotations

import json
import time

import pytest

from headrace.protocol.once import TwiceError, once


def test_each_name_once_is_an_object() -> None:
    assert json.loads('{"a": {"b": 1}, "b": 2}', object_pairs_hook=once) == {"a": {"b": 1}, "b": 2}


@pytest.mark.parametrize("text", ['{"a": 1, "a": 1}', '[{"x": {"b": 1, "a": 2, "\\u0061": 3}}]'])
def test_the_name_that_is_there_twice_is_told(text: str) -> None:
    with pytest.raises(TwiceError) as raised:
        json.loads(text, object_pairs_hook=once)
    assert raised.value.name == "a"


def test_many_names_before_it_take_no_longer() -> None:
    pairs = [(f"n{at}", at) for at in range(200_000)]
    began_s = time.process_time()
    with pytest.raises(TwiceError):
        once([*pairs, pairs[-1]])
    assert time.process_time() - began_s < 5.0, "a second look at each name is 200,000 looks"
