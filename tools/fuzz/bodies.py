"""Bodies of requests at every endpoint: each is a request or a RequestError, never anything else.

Whatever is accepted is held against Python's own JSON reader: the names of ignored fields have to
be those that no table knows. An error has to be short, fit into a JSON reply, and name its field.
Inputs are a line with the path and a body.

    python -m tools.fuzz.bodies --seed 1 --seconds 600
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from headrace.engine.limits import check_ranges
from headrace.errors import RequestError
from headrace.http.headers import MAX_VALUE_CHARS, ignored_params
from headrace.protocol.openai.fields import ENDPOINTS
from headrace.protocol.request import Endpoint, parse_request
from headrace.server.api_error import api_error
from headrace.server.replies.reply import encode
from tools.fuzz.harness import Target, main

# Of an error: room for a path, a value cut to 80 characters, a list of names and a remedy.
MAX_ERROR_CHARACTERS = 2000
# Larger ones only take longer: the server bounds bodies before it reads them.
MAX_INPUT_BYTES = 1 << 20

_BY_PATH = {endpoint.path: endpoint for endpoint in ENDPOINTS}
_MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Hi \u00e9 \U0001f600"}]},
    {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]},
    {"role": "tool", "content": "3", "tool_call_id": "1", "name": "f"},
]
_SEEDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/chat/completions", {"messages": _MESSAGES}),
    (
        "/v1/chat/completions",
        {
            "messages": _MESSAGES, "model": "m", "max_tokens": 5, "temperature": 0.5, "top_p": 0.9,
            "top_k": 3, "seed": 7, "stop": ["a", "b"], "stream": True, "logprobs": True,
            "top_logprobs": 2, "stream_options": {"include_usage": True}, "user": "me",
            "chat_template_kwargs": {"a": [1]}, "tools": [], "n": 1, "stop_token_ids": [1, 2],
        },
    ),
    ("/v1/completions", {"prompt": "x"}),
    (
        "/v1/completions",
        {
            "prompt": "x", "n": 2, "best_of": 3, "echo": True, "max_tokens": 0, "min_tokens": 0,
            "logit_bias": {"5": -100, "6": 1.5}, "allowed_token_ids": [5, 6], "bad_words": ["bad"],
            "samplers": ["penalties", "top_k"], "repetition_penalty": 1.1, "presence_penalty": -2,
            "frequency_penalty": 2, "prompt_logprobs": 0, "truncate_prompt_tokens": -1,
            "priority": -5, "timeout_s": 0.5, "request_id": "me", "return_metrics": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        },
    ),
    ("/v1/completions", {"prompt": ["x", "y"], "logprobs": 1, "echo": False, "min_p": 0.1}),
    ("/v1/completions", {"prompt": [[1, 2], [3]], "logit_bias": {}, "cache_salt": "s"}),
    ("/v1/completions", {"prompt": [1, 2, 3], "ignore_eos": True, "return_token_ids": True}),
    ("/tokenize", {"prompt": "x", "return_token_strs": True}),
    ("/tokenize", {"messages": _MESSAGES, "continue_final_message": True}),
    ("/detokenize", {"tokens": [1, 2, 3], "model": "m"}),
    ("/apply-template", {"messages": _MESSAGES, "add_generation_prompt": False}),
)  # fmt: skip


class Raw(str):
    """Text that is written into a body as it stands."""

    __slots__ = ()


_DEEP = 5000
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 0.5, -0.0, 1e300, 1 << 31, 1 << 63, -(1 << 63), (1 << 64) - 1,
    10**30, "", "x", "\x00", "0", "1", "auto", "none", "text", "user", "</s>", "\ud800", "a" * 2000,
    "\u202e\U0010ffff", [], {}, [[]], [None], [1, "x"], ["x", [1]], {"": 1}, {"x": {"y": []}},
    {"type": "text"}, {"type": "text", "text": "x"}, {"type": "image_url"}, {"1": 5, "-1": 1e9},
    {"include_usage": True}, {"a": {"a": {"a": [{"a": 1}]}}}, list(range(1500)), ["s"] * 100,
    Raw("NaN"), Raw("Infinity"), Raw("-Infinity"), Raw("1e400"), Raw("-1e-400"), Raw("01"),
    Raw("1" * 400), Raw("1." + "9" * 400), Raw("0x10"), Raw("'x'"), Raw("nul"), Raw(""),
    Raw('"\\ud800"'), Raw('"\\udc00\\ud800"'), Raw('"\\ud83d\\ude00"'), Raw('"\\u0000"'),
    Raw('"\\u12"'), Raw('"\\x41"'), Raw('"\n"'), Raw("[" * _DEEP + "]" * _DEEP),
    Raw("[" * _DEEP), Raw('{"a":' * _DEEP + "1" + "}" * _DEEP), Raw("[1,]"), Raw("/* */ 1"),
    Raw("1.0"), Raw("1e0"), Raw("5E-1"), Raw("-0"),
)  # fmt: skip
_KEYS = ("", "x", "role", "content", "type", "text", "\ud800", "a" * 300, "\x00", "é", "$.x[0]")


def make_target() -> Target:
    """Seeds are valid bodies of every endpoint."""
    seeds = [f"{path}\n{json.dumps(body)}".encode() for path, body in _SEEDS]
    assert {path for path, _ in _SEEDS} == set(_BY_PATH), "an endpoint has no seed"
    return Target(seeds, mutate, attempt)


def mutate(seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """A new input: a valid body with changed values, then perhaps with damaged bytes."""
    line, _, body = rng.choice(seeds).partition(b"\n")
    path = line.decode("ascii", "replace")
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):  # a guided fuzzer hands back inputs of its own
        value = dict(rng.choice(_SEEDS)[1])
    fields = _fields(path)
    for _ in range(rng.choice((0, 1, 1, 2, 4, 8))):
        if isinstance(value, dict) and rng.random() < 0.4:
            value = value | {rng.choice(fields): rng.choice(_VALUES)}
        else:
            value = _changed(value, rng)
    data = bytearray()
    for piece in _written(value, rng):
        data += piece.encode("utf-8", "surrogatepass")
        # Lists of lists repeated a few times over do not fit any memory.
        if len(data) > MAX_INPUT_BYTES:
            break
    if rng.random() < 0.25:
        _damage(data, rng)
    return path.encode() + b"\n" + bytes(data[:MAX_INPUT_BYTES])


def _fields(path: str) -> list[str]:
    endpoint = _BY_PATH.get(path)
    return [*_KEYS, *(endpoint.honoured if endpoint else ()), *(endpoint.known if endpoint else ())]


def _changed(value: Any, rng: random.Random) -> Any:
    """`value` with one change at a random depth."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        kind = rng.random()
        if kind < 0.12:
            return {name: entry for name, entry in value.items() if name != key}
        if kind < 0.24:
            return value | {rng.choice(_KEYS): value[key]}
        return value | {key: _changed(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.85:
        at = rng.randrange(len(value))
        if rng.random() < 0.2:
            return value[:200] * rng.choice((2, 10, 70))
        return [*value[:at], _changed(value[at], rng), *value[at + 1 :]]
    return rng.choice(_VALUES)


def _written(value: Any, rng: random.Random) -> Iterator[str]:
    """`value` as JSON; now and then with a key twice, odd spaces, or characters not escaped."""
    if isinstance(value, dict):
        pairs = [(key, entry) for key, entry in value.items()]
        if pairs and rng.random() < 0.05:
            pairs.insert(rng.randrange(len(pairs) + 1), rng.choice(pairs))
            pairs.append((rng.choice(pairs)[0], rng.choice(_VALUES)))
        space = rng.choice(("", "", " ", "\n\t"))
        mark = "{"
        for key, entry in pairs:
            yield f"{mark}{space}{_text(key, rng)}:{space}"
            yield from _written(entry, rng)
            mark = ","
        yield "}" if pairs else "{}"
    elif isinstance(value, list):
        mark = "["
        for entry in value:
            yield mark
            yield from _written(entry, rng)
            mark = ","
        yield "]" if value else "[]"
    elif isinstance(value, Raw):
        yield value
    else:
        yield _text(value, rng) if isinstance(value, str) else json.dumps(value)


def _text(text: str, rng: random.Random) -> str:
    return json.dumps(text, ensure_ascii=rng.random() < 0.5)


def _damage(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(data) + 1)
        kind = rng.random()
        if kind < 0.4:
            data[at:at] = rng.choice((b'"', b"\\", b"{", b"}", b"[", b",", b":", b"\xff", b"\xc3"))
        elif kind < 0.6:
            data[at : at + 1] = bytes([rng.randrange(256)])
        elif kind < 0.8:
            del data[at : at + rng.choice((1, 1, 5, 100))]
        elif kind < 0.9:
            data[at:at] = rng.choice((b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf", b"\0"))
        else:
            del data[at:]


def attempt(data: bytes) -> str:
    """How one input ended; AssertionError for a promise that was not kept."""
    line, _, body = data.partition(b"\n")
    endpoint: Endpoint[Any] | None = _BY_PATH.get(line.decode("ascii", "replace"))
    if endpoint is None:
        return "no such path"
    try:
        parsed = parse_request(body, endpoint)
        check_ranges(parsed.request)
    except RequestError as error:
        _check_error(error)
        return f"{endpoint.path} refused"
    try:
        values = json.loads(body)
    except RecursionError:
        return f"{endpoint.path} accepted, too deep to be held against Python's reader"
    named = {name for name in parsed.ignored if "." not in name and "[]" not in name}
    unknown = {
        name
        for name in values
        if name not in endpoint.honoured
        and name not in endpoint.known
        and "." not in name
        and "[]" not in name
    }
    assert named == unknown, f"ignored {sorted(named)} where {sorted(unknown)} are unknown"
    header = ignored_params(parsed.ignored)
    assert len(header) <= MAX_VALUE_CHARS + len(",..."), f"a header of {len(header)} characters"
    assert header.isascii(), f"{header!r} cannot be sent"
    assert header.isprintable(), f"{header!r} cannot be sent"
    return f"{endpoint.path} accepted"


def _check_error(error: RequestError) -> None:
    words = str(error)
    assert words, "an error without words"
    assert len(words) <= MAX_ERROR_CHARACTERS, f"an error of {len(words)} characters"
    reply = msgspec.json.decode(encode(api_error(error, "id").body))
    assert reply["error"]["message"] == words
    assert (reply["error"]["param"] or "")[:100] == (error.param or "")[:100]


if __name__ == "__main__":
    main(make_target, __doc__)
