"""A body that is edited: what was asked for changes, and not one byte more."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import RequestError
from headrace.protocol.json_object import MAX_FIELDS, MAX_NAME_BYTES, JsonObject

_SPACE = st.text(" \t\n\r", max_size=3)
_NUMBERS = st.sampled_from(["0", "-0", "1.10", "1E2", "12", "1", "0.1e-7", "123456789012345678901"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.text(max_size=6) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


class Written(NamedTuple):
    """A body and its pieces. between: what stands before each member but the first."""

    head: str
    members: list[str]
    between: list[str]
    tail: str
    names: list[str]

    @property
    def body(self) -> bytes:
        return self.joined(self.members)

    def joined(self, members: list[str | None], more: str = "") -> bytes:
        """Of members that may be gone, and what is added to them."""
        text = ""
        for number, member in enumerate(members):
            if member is not None:
                text += (self.between[number - 1] if text else "") + member
        added = more if text else more.removeprefix(",")
        return (self.head + text + added + self.tail).encode()


@st.composite
def _quoted(draw: st.DrawFn, text: str) -> str:
    """A JSON string: any of its characters may be escaped."""
    pieces = []
    for one in text:
        units = one.encode("utf-16-be")
        escaped = "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
        plain = json.dumps(one, ensure_ascii=False)[1:-1]
        pieces.append(draw(st.sampled_from([plain, escaped])))
    return '"' + "".join(pieces) + '"'


@st.composite
def _value(draw: st.DrawFn) -> str:
    if draw(st.booleans()):
        return draw(_NUMBERS)
    value = draw(_VALUES)
    indent = draw(st.sampled_from([None, 0, 2]))
    return json.dumps(value, ensure_ascii=draw(st.booleans()), indent=indent)


@st.composite
def _objects(draw: st.DrawFn) -> Written:
    names = draw(st.lists(st.text(max_size=5), unique_by=str.casefold, max_size=5))
    members = [
        draw(_quoted(name)) + draw(_SPACE) + ":" + draw(_SPACE) + draw(_value()) for name in names
    ]
    between = [draw(_SPACE) + "," + draw(_SPACE) for _ in names[1:]]
    head = draw(_SPACE) + "{" + draw(_SPACE)
    tail = (draw(_SPACE) if names else "") + "}" + draw(_SPACE)
    return Written(head, members, between, tail, names)


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(st.data(), _objects())
def test_only_what_is_edited_changes(data: st.DataObject, written: Written) -> None:
    known = st.sampled_from(written.names) if written.names else st.nothing()
    change = st.none() | _value().map(str.encode)
    changes = data.draw(st.dictionaries(known | st.text(max_size=5), change, max_size=4))
    members: list[str | None] = []
    for name, member in zip(written.names, written.members, strict=True):
        new = changes.get(name)
        if name not in changes:
            members.append(member)
        elif new is None:
            members.append(None)
        else:
            value = JsonObject.read(written.body).value(name)
            assert value is not None
            members.append(member.removesuffix(value.decode()) + new.decode())
    added = {
        name: value
        for name, value in changes.items()
        if name not in written.names and value is not None
    }
    more = "".join(
        f",{json.dumps(name, ensure_ascii=False)}:{value.decode()}" for name, value in added.items()
    )
    edited = JsonObject.read(written.body).edited(changes)
    wanted = json.loads(written.body)
    for name, value in changes.items():
        if value is None:
            wanted.pop(name, None)
        else:
            wanted[name] = json.loads(value)
    assert json.loads(edited) == wanted
    assert list(json.loads(edited)) == list(wanted)
    if not any(ord(one) < 32 or ord(one) == 127 for name in added for one in name):
        assert edited == written.joined(members, more)


@settings(max_examples=60, deadline=None)
@given(_objects())
def test_values_are_those_of_the_body(written: Written) -> None:
    found = JsonObject.read(written.body)
    assert found.edited({}) == written.body
    assert list(found.names) == written.names
    for name, member in zip(written.names, written.members, strict=True):
        value = found.value(name)
        assert value is not None
        assert member.encode().endswith(value)
        assert json.loads(value) == json.loads(written.body)[name]
    assert found.value("\0not there") is None


@settings(max_examples=60, deadline=None)
@given(st.data(), _objects().filter(lambda one: bool(one.names)))
def test_a_name_that_is_there_twice_is_refused(data: st.DataObject, written: Written) -> None:
    name = data.draw(st.sampled_from(written.names))
    again = data.draw(_quoted(name)) + ":" + data.draw(_value())
    at = data.draw(st.integers(0, len(written.members)))
    members = [*written.members[:at], again, *written.members[at:]]
    body = (written.head + ",".join(members) + written.tail).encode()
    with pytest.raises(RequestError, match="twice") as error:
        JsonObject.read(body)
    assert error.value.param == name


@pytest.mark.parametrize(
    "body",
    [
        '{"a":1,"a":12}',
        '{"a":12,"a":1}',
        '{"a":1,"a":1}',
        '{"a":1,"\\u0061":1}',
        '{"a":"x","b":2,"a":"longer"}',
        '{"a":[1],"a":[1,2]}',
        '{"a":"}","a":""}',
        '{"a":"\\",\\"a\\":1","a":""}',
    ],
)
def test_duplicates_of_all_lengths(body: str) -> None:
    with pytest.raises(RequestError, match="'a' twice"):
        JsonObject.read(body.encode())


@pytest.mark.parametrize(
    "body",
    [
        '{"model":"a","Model":"b"}',
        '{"MODEL":"a","n":1,"mod\\u0065l":"a"}',
        '{"stop":"a","\u017ftop":"b"}',  # a long s, which Go takes for an s
        '{"to\u212aen":"a","token":"b"}',  # the sign of the kelvin
    ],
)
def test_names_that_differ_in_case_alone_are_the_same(body: str) -> None:
    with pytest.raises(RequestError, match="twice"):
        JsonObject.read(body.encode())


def test_names_with_capitals_are_told() -> None:
    found = JsonObject.read('{"model":"a","Tools":[],"stra\u00dfe":1,"topP":2,"\u6f22":3}'.encode())
    assert found.with_capitals == ("Tools", "stra\u00dfe", "topP")
    assert JsonObject.read(b'{"model":"a","top_p":1}').with_capitals == ()
    assert JsonObject.read(b"{}").with_capitals == ()


def test_the_same_name_on_another_level_is_another_field() -> None:
    body = b'{"a":{"a":1,"a":2},"b":[{"a":3}]}'
    assert JsonObject.read(body).edited({"b": b"0"}) == b'{"a":{"a":1,"a":2},"b":0}'


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"[]",
        b"null",
        b'"a"',
        b"{",
        b"{]",
        b'{"a"}',
        b'{"a":}',
        b'{"a":1,}',
        b'{"a":1}x',
        b'{"a":1}{}',
        b"{a:1}",
        b'{"a":tru}',
        b'{"\xff":1}',
        b'{"\\ud800":1}',
        b"\xef\xbb\xbf{}",
        b'{"a":' + b"[" * 60_000 + b"]" * 60_000 + b"}",
        b'{"a":' + b"[" * 600_000 + b"]" * 600_000 + b"}",
        b'{"' + b"x" * (MAX_NAME_BYTES + 1) + b'":1}',
        b'{"' + b'\\"' * MAX_NAME_BYTES + b'":1}',
        b'{"' + b"\\\\" * 10**6 + b'":1}',
        b"{" + b",".join(b'"%d":1' % number for number in range(MAX_FIELDS + 1)) + b"}",
    ],
    ids=lambda body: body[:12].decode(errors="replace") + f"..{len(body)}",
)
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(RequestError):
        JsonObject.read(body)


def test_texts() -> None:
    found = JsonObject.read(b'{"model":"gpt\\u002d5","n":1,"user":null}')
    assert found.text("model") == "gpt-5"
    assert found.text("user") is None
    assert found.text("nobody") is None
    with pytest.raises(RequestError, match="n: must be a string") as error:
        found.text("n")
    assert error.value.param == "n"


def test_decoded_values() -> None:
    found = JsonObject.read(b'{"a":[1,{"b":"\\u00e9"}],"n":null,"big":1e400,"odd":"\xff"}')
    assert found.decoded("a") == [1, {"b": "é"}]
    assert found.decoded("n") is None
    assert found.decoded("nobody") is None
    assert "n" in found
    assert "nobody" not in found
    for name in ("big", "odd"):
        with pytest.raises(RequestError, match=name) as error:
            found.decoded(name)
        assert error.value.param == name


def test_a_body_as_clients_send_it() -> None:
    body = b"""{
  "model": "a",
  "temperature": 1.0,
  "stream_options": {"include_usage": false},
  "messages": [{"role": "user", "content": "\\u00e9 \xc3\xa9"}],
  "x_unknown": 1e400
}
"""
    edited = JsonObject.read(body).edited(
        {"model": b'"b"', "stream_options": None, "user": b'"u"', "not_there": None}
    )
    assert edited == (
        body.replace(b'"a"', b'"b"')
        .replace(b',\n  "stream_options": {"include_usage": false}', b"")
        .replace(b"1e400", b'1e400,"user":"u"')
    )


def test_a_large_body_is_edited() -> None:
    picture = b"A" * 2**20
    body = b'{"messages":[{"content":"%s"}],\n "model" : "a" }' % picture
    assert JsonObject.read(body).edited({"model": b'"b"'}) == body.replace(b'"a"', b'"b"')
