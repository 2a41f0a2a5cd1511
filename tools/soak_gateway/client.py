"""What clients do: most read their answers, some leave, some send what nobody should."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any, Literal, NamedTuple

import httpx

Fate = Literal["reads", "leaves early", "leaves in the middle", "reads slowly", "half a body",
               "wrong key", "no JSON", "unknown model", "too large"]  # fmt: skip

FATES: dict[Fate, float] = {
    "reads": 80, "leaves early": 4, "leaves in the middle": 7, "reads slowly": 2,
    "half a body": 1, "wrong key": 2, "no JSON": 1, "unknown model": 2, "too large": 1,
}  # fmt: skip
# What the gateway has to say to those that it should not serve.
STATUSES = {"wrong key": 401, "no JSON": 400, "unknown model": 404, "too large": 413}
PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat")
_MOST_USERS = 500
_ALIKE = 20


class Planned(NamedTuple):
    """One request. wait_s: how long a client stays that leaves."""

    number: int
    path: str
    key: str
    model: str
    stream: bool
    fate: Fate
    user: str
    wait_s: float

    @property
    def prompted(self) -> int:
        """The number in its prompt; some of one model say the same, for the gateway's cache."""
        return self.number - self.number % _ALIKE if self.model == "kept" else self.number

    @property
    def id(self) -> str:
        """Under which the ledger has it."""
        return f"soak-{self.number}"


class Seen(NamedTuple):
    """status: None where the client left before a reply. whole: all of the body came."""

    planned: Planned
    status: int | None
    whole: bool
    error: str = ""


def plan(number: int, source: random.Random, keys: tuple[str, ...]) -> Planned:
    """The next request, by chance."""
    fate = source.choices(list(FATES), list(FATES.values()))[0]
    return Planned(
        number=number,
        path=source.choice(PATHS),
        key="hr-nobodys" if fate == "wrong key" else source.choice(keys),
        model="nothing" if fate == "unknown model" else source.choice(("chat", "sticky", "kept")),
        stream=source.random() < 0.7,
        fate=fate,
        user=f"user-{source.randrange(_MOST_USERS)}",
        wait_s=source.expovariate(1 / 0.1),
    )


def body_of(planned: Planned) -> bytes:
    """In the dialect of its path."""
    text = f"This is number {planned.prompted} of the soak. " + "Tell me of mills. " * 20
    value: dict[str, Any] = {"model": planned.model, "stream": planned.stream}
    if planned.path == "/v1/responses":
        value["input"] = text
    else:
        value["messages"] = [{"role": "user", "content": text}]
        if planned.path == "/v1/messages":
            value |= {"max_tokens": 200}
    if planned.fate == "too large":
        value["padding"] = "x" * (1 << 20)
    body = json.dumps(value).encode()
    return body[:-5] if planned.fate == "no JSON" else body


async def ask(client: httpx.AsyncClient, planned: Planned) -> Seen:
    """Send it and do what is planned. Never raises for what a gateway may do."""
    headers = {
        "authorization": f"Bearer {planned.key}",
        "content-type": "application/json",
        "x-request-id": planned.id,
        "x-session-id": planned.user,
    }
    body = body_of(planned)
    try:
        if planned.fate == "half a body":
            await _half(client, planned, headers, body)
            return Seen(planned, None, whole=False)
        if planned.fate == "leaves early":
            try:
                async with asyncio.timeout(planned.wait_s):
                    reply = await client.post(planned.path, content=body, headers=headers)
            except TimeoutError:
                return Seen(planned, None, whole=False)
            return Seen(planned, reply.status_code, whole=True)
        return await _read(client, planned, headers, body)
    except httpx.HTTPError as error:
        return Seen(planned, None, whole=False, error=f"{type(error).__name__}: {error}")


async def _read(
    client: httpx.AsyncClient, planned: Planned, headers: dict[str, str], body: bytes
) -> Seen:
    async with client.stream("POST", planned.path, content=body, headers=headers) as reply:
        async for _ in reply.aiter_raw(256):
            if planned.fate == "leaves in the middle":
                return Seen(planned, reply.status_code, whole=False)
            if planned.fate == "reads slowly":
                await asyncio.sleep(0.01)
        return Seen(planned, reply.status_code, whole=True)


async def _half(
    client: httpx.AsyncClient, planned: Planned, headers: dict[str, str], body: bytes
) -> None:
    """A client that goes in the middle of its body."""
    url = client.base_url
    _, writer = await asyncio.open_connection(url.host, url.port)
    lines = [f"POST {planned.path} HTTP/1.1", "host: localhost", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body[: len(body) // 2])
    await writer.drain()
    await asyncio.sleep(planned.wait_s)
    writer.transport.abort()
