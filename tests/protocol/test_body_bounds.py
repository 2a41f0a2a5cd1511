"""How much JSON a body may be: counted exactly, whatever its strings hold."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import RequestError
from headrace.protocol import body_bounds
from headrace.protocol.body_bounds import (
    DEFAULT_BOUNDS,
    MAX_CONTAINERS,
    MAX_NAMES,
    TOO_COMPLEX,
    BodyBounds,
    check_bounds,
)
from headrace.protocol.openai.fields import COMPLETIONS
from headrace.protocol.request import parse_request

BODY_BYTES = 16 * 2**20


def refused(body: bytes, bounds: BodyBounds = DEFAULT_BOUNDS) -> bool:
    try:
        check_bounds(body, bounds)
    except RequestError as error:
        assert error.code == TOO_COMPLEX
        return True
    return False


@pytest.mark.parametrize("one", ["[]", "{}", '{"a":[]}', "[[]]", '["[[{{"]', '{"\\"[":1}'])
def test_containers_are_counted_to_one(one: str) -> None:
    each = 2 if one in ('{"a":[]}', "[[]]") else 1
    most = (MAX_CONTAINERS - 1) // each
    assert not refused(f"[{','.join([one] * most)}]".encode())
    assert refused(f"[{','.join([one] * (most + 1))}]".encode())


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_body_may_be_any_buffer(kind: Callable[[bytes], bytes | bytearray | memoryview]) -> None:
    with pytest.raises(RequestError):
        check_bounds(kind(b"[" + b"[]," * MAX_CONTAINERS + b"[]]"))
    check_bounds(kind(b"[" + b'"[]",' * MAX_CONTAINERS + b"[]]"))


@pytest.mark.long
def test_names_are_counted_to_one() -> None:
    names = [f'"{number}:":0' for number in range(MAX_NAMES)]
    assert not refused(f"{{{','.join(names)}}}".encode())
    assert refused(f'{{{",".join(names)},"x":0}}'.encode())


@pytest.mark.parametrize("one", ["1", '"a"', "null", '",,,"', '"\\",\\\\"', '{"a":1}'])
def test_values_are_counted_to_one(one: str) -> None:
    bounds = BodyBounds(containers=10**6, values=MAX_CONTAINERS)
    most = MAX_CONTAINERS
    assert not refused(f"[{','.join([one] * most)}]".encode(), bounds)
    assert refused(f"[{','.join([one] * (most + 1))}]".encode(), bounds)
    assert not refused(f"[{','.join([one] * (most + 1))}]".encode(), BodyBounds(10**6))


def test_fewer_names_may_be_allowed() -> None:
    body = b'{"x":[' + b",".join(b'{"a":1}' for _ in range(30_000)) + b"]}"
    assert not refused(body * 2)
    assert refused(body * 3, BodyBounds(10**6, names=90_002))
    assert not refused(body * 3, BodyBounds(10**6, names=90_003))


PIECES = ['"', "\\", '\\"', "[", "{", ":", ",", "a", "é", '","', '"[{"', "\\u0022"]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(PIECES)), st.integers(1, 9))
def test_marks_are_counted_outside_strings_wherever_a_step_ends(
    units: list[str], step_bytes: int
) -> None:
    """Any bytes, JSON or not, beside a count of one character after another."""
    body = "".join(units).encode()
    in_string = escaped = False
    expected = [0, 0, 0]
    for char in body.decode():
        if (
            escaped and char in '"\\'
        ):  # not of JSON outside a string, where it does not count either
            escaped = False
            continue
        escaped = char == "\\"
        if escaped:
            continue
        if char == '"':
            in_string = not in_string
        elif not in_string:
            for index, marks in enumerate(("[{", ":", ",")):
                expected[index] += char in marks
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(body_bounds, "_STEP_BYTES", step_bytes)
        patch.setattr(body_bounds, "_UNCOUNTED_BYTES", -1)
        containers, names, commas = expected
        assert not refused(body, BodyBounds(containers, names, commas + 1))
        assert refused(body, BodyBounds(containers - 1, names, commas + 1)) or not containers
        assert refused(body, BodyBounds(containers, names - 1, commas + 1)) or not names
        assert refused(body, BodyBounds(containers, names, commas)) or not commas


@pytest.mark.parametrize("text", ["[{:", '"[{:', "\\[", '\\"{', "\\\\", "\n:[", "é{:", '"'])
def test_what_strings_hold_does_not_count(text: str) -> None:
    assert not refused(json.dumps({"prompt": text * 2**18}).encode())
    assert not refused(json.dumps({"prompt": text * 2**18}, ensure_ascii=False).encode())


@pytest.mark.long
@settings(max_examples=15, deadline=None)
@given(st.recursive(st.text('"\\[{:é\n') | st.integers(), st.lists, max_leaves=20))
def test_it_agrees_with_the_decoder(value: object) -> None:
    def containers(of: object) -> int:
        return 1 + sum(map(containers, of)) if isinstance(of, list) else 0

    filler = [[] for _ in range(MAX_CONTAINERS - 1 - containers(value))]
    assert not refused(json.dumps([value, *filler]).encode())
    assert refused(json.dumps([value, *filler, []]).encode())


@pytest.mark.long
@pytest.mark.parametrize(
    "unit", [b'"[', b'\\"[', b'"\\"[', b"\\", b'"', b"[", b'"\\\\"[:', b'\\\\"{:'], ids=repr
)
def test_the_worst_bodies_take_time_in_proportion(unit: bytes) -> None:
    body = (b'{"prompt":"' + unit * (BODY_BYTES // len(unit)))[:BODY_BYTES]
    begun_s = time.perf_counter()
    refused(body)
    assert time.perf_counter() - begun_s < 20


def test_very_many_unknown_names_are_told_in_part() -> None:
    body = json.dumps({"prompt": "x", **{f"x{number}": 1 for number in range(50_000)}}).encode()
    parsed = parse_request(body, COMPLETIONS)
    assert len(parsed.ignored) == 1000
    assert parsed.request.prompt == "x"
