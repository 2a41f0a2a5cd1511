"""Bad keys, bodies, models, headers and paths: rejected clearly, and nothing is asked for them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.chaos.faults import GOOD, Provider
from tests.gateway.chaos.raw_client import AUTH, CHAT, Heard, request, sent
from tests.gateway.upstream.scripted import served
from tests.gateway.workers.gateway_process import KEY, MASTER, Running, ledger_rows, running

pytestmark = pytest.mark.process

MOST_BODY_BYTES = 20_000
DEEP = b"[" * 9000 + b"]" * 9000
LONG = CHAT[:-1] + b" " * MOST_BODY_BYTES + b"}"
CHUNKED = "transfer-encoding: chunked"
SMUGGLED = request(body=CHAT)


def body(**more: Any) -> bytes:
    return json.dumps({**json.loads(CHAT), **more}).encode()


def chunks(data: bytes, size: int = 4000) -> bytes:
    """As chunks of HTTP."""
    each = [data[at : at + size] for at in range(0, len(data), size)]
    return b"".join(f"{len(one):x}\r\n".encode() + one + b"\r\n" for one in each) + b"0\r\n\r\n"


KEYS = {
    "none": (request(auth=None), {401}),
    "wrong": (request(auth="authorization: Bearer hr-wrong"), {401}),
    "empty": (request(auth="authorization: Bearer "), {401}),
    "no scheme": (request(auth=f"authorization: {KEY}"), {401}),
    "basic": (request(auth="authorization: Basic aGk6aGk="), {401}),
    "more": (request(auth=AUTH + "x"), {401}),
    "latin": (request(auth="authorization: Bearer \xff\xfe"), {400, 401}),
    "huge": (request(auth="authorization: Bearer " + "k" * 20_000), {401, 431}),
    "in the query": (request(auth=None, target=f"/v1/chat/completions?api_key={KEY}"), {401}),
}  # fmt: skip
BODIES = {
    "empty": (request(body=b""), {400}),
    "no JSON": (request(body=b"model=good"), {400}),
    "a list": (request(body=b"[1]"), {400}),
    "cut": (request(body=CHAT[:-10]), {400}),
    "two": (request(body=CHAT + CHAT), {400}),
    "deep": (request(body=b'{"model":"good","messages":' + DEEP + b"}"), {400}),
    "NaN": (request(body=CHAT[:-1] + b', "temperature": NaN}'), {400}),
    "no UTF-8": (request(body=CHAT.replace(b"Hi", b"\xff\xfe")), {400}),
    "twice": (request(body=CHAT[:-1] + b', "model": "other"}'), {400}),
    "no model": (request(body=b'{"messages": []}'), {400}),
    "model 7": (request(body=body(model=7)), {400}),
    "model null": (request(body=body(model=None)), {400}),
    "stream yes": (request(body=body(stream="yes")), {400}),
    "unknown model": (request(body=body(model="goood")), {404}),
    "path as model": (request(body=body(model="p/../../etc/passwd\x00")), {400, 404}),
    "bad models": (request(body=body(models="good")), {400}),
    "bad provider": (request(body=body(provider={"order": 7})), {400}),
}  # fmt: skip
SIZES = {
    "stated": (request("content-length: 99999999", length=False), {413}),
    "sent": (request(body=LONG), {413}),
    "chunked": (request(CHUNKED, length=False, body=chunks(LONG)), {413}),
    "endless number": (request("content-length: " + "9" * 40, length=False), {400, 413}),
    "long URL": (request(target="/v1/chat/completions?" + "a" * 20_000), {414, 400}),
}  # fmt: skip
HEADERS = {
    "two lengths": (request(f"content-length: {len(CHAT) - 1}"), {400}),
    "length and chunked": (request(CHUNKED, body=chunks(CHAT) + SMUGGLED), {400}),
    "chunked and length": (
        request(CHUNKED, "content-length: 4", length=False, body=chunks(CHAT) + SMUGGLED), {400},
    ),
    "xchunked": (request("transfer-encoding: xchunked", body=CHAT), {400, 501}),
    "chunked twice": (
        request(f"{CHUNKED}, identity", length=False, body=chunks(CHAT)), {400, 501},
    ),
    "negative length": (request("content-length: -5", length=False), {400}),
    "plus length": (request("content-length: +5", length=False), {400}),
    "listed length": (request("content-length: 5, 5", length=False), {400}),
    "NUL": (request(b"x-a: a\x00b"), {400}),
    "bare CR": (request(b"x-a: a\rx-b: c"), {400}),
    "space before colon": (request(b"x-a : b"), {400}),
    "no colon": (request(b"nonsense"), {400}),
    "huge": (request("x-a: " + "a" * 200_000), {431, 400}),
    "many": (request(*(f"x-{at}: a" for at in range(500))), {431, 400}),
    "bad chunk": (request(CHUNKED, length=False, body=b"zz\r\nhello\r\n0\r\n\r\n"), {400}),
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64, {400}),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400, 505}),
}  # fmt: skip
PATHS = {
    target: (request(target=target), {400, 404, 405})
    for target in (
        "//v1/chat/completions", "/v1//chat/completions", "/v1/../v1/chat/completions",
        "/v1/%2e%2e/v1/chat/completions", "/%2e%2e/%2e%2e/etc/passwd", "/v1/chat/completions/",
        "/V1/CHAT/COMPLETIONS", "/v1/chat/completions%00", "/v1/chat/completions%0d%0aX:y",
        "/v1/chat/completions;a=b", "/v1\\chat\\completions", "/v1/chat/completions%20",
        "*", "/..", "/%c0%ae%c0%ae/", "http://", "/v1/chat/comple\x00tions",
    )
} | {
    "GET": (request(method="GET", body=b""), {405}),
    "TRACE": (request(method="TRACE", body=b""), {400, 405}),
    "CONNECT": (request(method="CONNECT", target="evil.example:443", body=b""), {400, 404, 405}),
    "BREW": (request(method="BREW"), {400, 405}),
}  # fmt: skip
CASES = {
    f"{group}: {name}": case
    for group, cases in {
        "key": KEYS, "body": BODIES, "size": SIZES, "header": HEADERS, "path": PATHS,
    }.items()
    for name, case in cases.items()
}  # fmt: skip


def settings(origin: object) -> dict[str, Any]:
    return {
        "listen": {"max_body_bytes": MOST_BODY_BYTES},
        "access": {"master_key": MASTER, "keys": {"k": {"key": KEY}}},
        "providers": {"p": {"base_url": f"{origin}/v1"}},
        "models": {GOOD: [{"model": f"p/{GOOD}", "price": {"input": 1, "output": 2}}]},
        "pass_unknown_models": False,
        "ledger": {"path": "ledger.sqlite3"},
        "log": {"level": "debug"},
    }


@asynccontextmanager
async def gateway_of(folder: Path) -> AsyncIterator[tuple[Running, Provider]]:
    provider = Provider()
    async with (
        served(provider.answer) as scripted,
        running(folder, settings(scripted.origin), workers=1) as gateway,
    ):
        yield gateway, provider


def complaint(name: str, heard: Heard, expected: set[int]) -> str | None:
    if heard.status not in expected:
        return f"{name}: {heard.status} instead of {sorted(expected)}: {heard.body[:200]!r}"
    if heard.replies != 1:
        return f"{name}: {heard.replies} replies"
    try:
        error = heard.error
    except (ValueError, KeyError, TypeError):
        return f"{name}: {heard.status} without an error in JSON: {heard.body[:200]!r}"
    if not isinstance(error, dict) or not error.get("message"):
        return f"{name}: an error that says nothing: {error!r}"
    if KEY.encode() in heard.body + heard.head:
        return f"{name}: the key comes back"
    return None


async def test_everything_bad_is_rejected_clearly(tmp_path: Path) -> None:
    async with gateway_of(tmp_path) as (gateway, provider):
        found = []
        names = list(CASES)
        for at in range(0, len(names), 10):
            some = names[at : at + 10]
            heard = await asyncio.gather(*(sent(gateway, CASES[name][0]) for name in some))
            found += list(zip(some, heard, strict=True))
        wrong = [
            said
            for name, heard in found
            if (said := complaint(name, heard, CASES[name][1])) is not None
        ]
        assert not wrong, "\n".join(wrong)
        assert provider.counted == {}, "nobody was asked"
        good = await sent(gateway, request())
        assert good.status == 200, "and it is as well as before"
    rows = ledger_rows(tmp_path, "outcome, status, cost_nusd")
    assert {one for one in rows if one[0] != "answered"} <= {
        ("refused", 400, None), ("refused", 404, None), ("refused", 413, None),
    }  # fmt: skip
    assert "Traceback" not in gateway.log.read_text()


async def test_what_is_odd_and_right_is_served(tmp_path: Path) -> None:
    """So that the other test is not passed by refusing everything."""
    odd = {
        "same length twice": request(f"content-length: {len(CHAT)}"),
        "chunked": request(CHUNKED, length=False, body=chunks(CHAT, 7)),
        "absolute form": request(target="http://gateway/v1/chat/completions"),
        "query": request(target="/v1/chat/completions?a=/../b"),
        "upper case names": request("X-ODD: 1", auth=AUTH.replace("auth", "AUTH")),
        "ids are cleaned": request(b"x-request-id: a\xffb"),
        "x-api-key": request(auth=f"x-api-key: {KEY}"),
    }  # fmt: skip
    async with gateway_of(tmp_path) as (gateway, _):
        for name, data in odd.items():
            heard = await sent(gateway, data)
            allowed = {200, 400} if name == "same length twice" else {200}
            assert heard.status in allowed, (name, heard)
            assert b"a\xffb" not in heard.head
