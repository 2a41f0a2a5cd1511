"""Bodies in which values were replaced are still what they were otherwise."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ConfigError
from headrace.gateway.building.request_log import redaction_of
from headrace.gateway.pii.span import KINDS
from headrace.gateway.request_log.redaction import Redaction
from headrace.gateway.settings.request_log import RedactSettings

ALL = Redaction(KINDS)
PICTURE = bytes(range(256)) * 4
ENCODED = base64.b64encode(PICTURE).decode()
TOLD = f"1024 bytes sha256:{hashlib.sha256(PICTURE).hexdigest()}]"


def test_nothing_but_what_is_found_changes() -> None:
    body = (
        '{ "a":\t["x@y.example", 1.50e3, "t\\u00fcr", {"k": "call \\"+49 30 1234567\\""}],"z":null}'
    )
    told = ALL.json(body)
    assert told.times == 2
    assert told.text == (
        '{ "a":\t["[EMAIL]", 1.50e3, "t\\u00fcr", {"k": "call \\"[PHONE]\\""}],"z":null}'
    )


def test_a_body_without_anything_is_the_same_text() -> None:
    body = '{"messages": [{"role": "user", "content": "hello"}], "n": 1}'
    assert ALL.json(body).text is body


def test_escapes_hide_nothing() -> None:
    body = '{"a": "x\\u0040y.example and \\u0034111111111111111"}'
    assert json.loads(ALL.json(body).text) == {"a": "[EMAIL] and [CREDIT_CARD]"}


def test_names_of_fields_are_looked_at_too() -> None:
    assert ALL.json('{"x@y.example": 1}').text == '{"[EMAIL]": 1}'


def test_arguments_of_tools_are_json_in_a_string() -> None:
    inner = json.dumps({"password": "hunter2", "to": "x@y.example", "n": [1, 2]})
    body = json.dumps({"arguments": inner, "password": {"a": ["deep", {"b": 1}]}, "after": 1})
    told = Redaction(KINDS, fields=["pass*"]).json(body)
    read = json.loads(told.text)
    assert read["password"] == "[REDACTED]" and read["after"] == 1
    assert json.loads(read["arguments"]) == {
        "password": "[REDACTED]",
        "to": "[EMAIL]",
        "n": [1, 2],
    }
    assert told.times == 3


def test_text_that_looks_like_json_and_is_none() -> None:
    body = json.dumps({"content": "[see] x@y.example", "more": "{x@y.example"})
    assert json.loads(ALL.json(body).text) == {"content": "[see] [EMAIL]", "more": "{[EMAIL]"}


@pytest.mark.parametrize("value", ["1", "true", '"x"', "[1,[2],{}]", '{"a":{"b":[]}}'])
def test_hidden_fields_go_whole_whatever_they_are(value: str) -> None:
    body = f'{{"list": [{{"Secret": {value}, "x": 1}}], "y": 2}}'
    told = Redaction(fields=["secret"]).json(body)
    assert told.text == '{"list": [{"Secret": "[REDACTED]", "x": 1}], "y": 2}'


def test_own_patterns() -> None:
    settings = RedactSettings(patterns={"case": r"CASE-[0-9]+"}, pii=("email",))
    told = redaction_of(settings).json('{"a": "CASE-12 and CASE-3 of x@y.example, 4111"}')
    assert told == ('{"a": "[CASE] and [CASE] of [EMAIL], 4111"}', 3)


@pytest.mark.parametrize("pattern", ["(", "(?=a)", "a*"])
def test_patterns_that_cannot_be_looked_for(pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"^request_log\.redact\.patterns\.case: "):
        redaction_of(RedactSettings(patterns={"case": pattern}))


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("url", f"data:image/png;base64,{ENCODED}", f"[MEDIA image/png {TOLD}"),
        ("text", f"![](data:image/png;base64,{ENCODED}) so", f"![]([MEDIA image/png {TOLD}) so"),
        ("data", ENCODED, f"[MEDIA {TOLD}"),
        ("images", [ENCODED], [f"[MEDIA {TOLD}"]),
        ("data", ENCODED.rstrip("=").replace("+", "-").replace("/", "_"), f"[MEDIA {TOLD}"),
        ("signature", ENCODED, ENCODED),
        ("data", "short", "short"),
    ],
)
def test_media(field: str, value: Any, told: Any) -> None:
    assert json.loads(Redaction().json(json.dumps({field: value})).text) == {field: told}
    kept = json.dumps({field: value})
    assert Redaction(media=False).json(kept).text is kept


def test_the_beginning_of_a_body() -> None:
    body = '{"a": "x@y.example", "b": "call +49 30 1234567 or'
    assert ALL.json(body).text == '{"a": "[EMAIL]", "b": "call [PHONE] or'


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.mark.long
@given(JSON, st.booleans(), st.sampled_from([None, 1]))
def test_any_json_stays_what_it_is(value: Any, ascii_only: bool, indent: int | None) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    told = Redaction(fields=["never a name"], patterns=[("x", re.compile("\0\0\0"))]).json(body)
    assert told.text == body


@given(st.lists(st.text(max_size=5) | st.just("x@y.example"), max_size=8))
def test_what_is_kept_is_valid_json(texts: list[str]) -> None:
    body = json.dumps({"a": texts, "x@y.example": {"b": texts}})
    told = ALL.json(body)
    assert "x@y.example" not in told.text
    read = json.loads(told.text)
    assert len(read["a"]) == len(texts)
