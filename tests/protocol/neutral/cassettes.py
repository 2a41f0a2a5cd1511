"""Recorded exchanges with real providers, where `../shared/assets` is there.

Three forms are read: vcrpy's (openllmetry), the same with `parsed_body` (pydantic-ai) and go-vcr's
(Envoy's AI gateway). Archives are read in memory.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import tarfile
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import yaml

FOLDER = Path(__file__).parents[4] / "shared" / "assets" / "cassettes"
ARCHIVES = ("pydantic-ai.tar.gz", "openllmetry.tar.gz", "envoy-ai-gateway", "llm")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Exchange(NamedTuple):
    """One request and its reply. Header names are in lower case, values joined by ", ".

    at: the cassette's path and the exchange's number in it. request, body: decoded bytes.
    """

    at: str
    host: str
    path: str
    request: bytes
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def streamed(self) -> bool:
        """Whether the reply is a stream of events."""
        kind = self.headers.get("content-type", "")
        return "event-stream" in kind or "eventstream" in kind or "ndjson" in kind


@cache
def _texts(archive: str) -> tuple[tuple[str, str], ...]:
    """Name and text of the cassettes of an archive, or of a folder of FOLDER."""
    source = FOLDER / archive
    if not source.exists():
        pytest.skip(f"needs {archive} of the shared test assets (../shared/assets/cassettes)")
    if source.is_dir():
        found = sorted(source.rglob("*.yaml"))
        return tuple((str(one.relative_to(FOLDER)), one.read_text()) for one in found)
    texts = []
    with tarfile.open(source) as opened:
        for member in opened:
            name = member.name.removeprefix("./")
            if name.endswith(".yaml"):
                file = opened.extractfile(member)
                if file is not None:
                    texts.append((name, file.read().decode()))
    return tuple(sorted(texts))


def exchanges(archive: str, under: str = "", host: str = "", holds: str = "") -> list[Exchange]:
    """All exchanges below `under` whose host holds `host`; skips the test without the assets.

    archive: "pydantic-ai.tar.gz", "openllmetry.tar.gz" or "envoy-ai-gateway". holds: what stands
    in the text of the cassettes looked for; to parse the others takes longest. What one test has
    parsed is there for all others.
    """
    found = [
        exchange
        for name, text in _texts(archive)
        if (under in name or (FOLDER / archive).is_dir()) and holds in text
        for exchange in _exchanges(name, text)
        if host in exchange.host
    ]
    assert found, f"no exchanges below {under!r} with {host!r}"
    return found


@pytest.fixture(scope="session")
def recordings() -> None:
    """All archives are parsed, which takes seconds: the set-up of tests that read them."""
    for archive in ARCHIVES:
        if (FOLDER / archive).exists():
            exchanges(archive)


@cache
def _exchanges(name: str, text: str) -> tuple[Exchange, ...]:
    return tuple(_read(name, text))


def _read(name: str, text: str) -> Iterator[Exchange]:
    document = yaml.load(io.StringIO(text), Loader=_LOADER)  # noqa: S506
    for number, item in enumerate(document.get("interactions") or ()):
        if "request" not in item:
            continue  # gRPC, recorded in a form of its own
        request, response = item["request"], item["response"]
        address = urlsplit(request.get("uri") or request.get("url") or "")
        headers = {
            key.lower(): _joined(value) for key, value in (response.get("headers") or {}).items()
        }
        status = response.get("status_code", response.get("code", response.get("status")))
        code = status["code"] if isinstance(status, dict) else status
        yield Exchange(
            f"{name}#{number}",
            address.netloc,
            address.path + (f"?{address.query}" if address.query else ""),
            _body(request, {}),
            int(code),
            headers,
            _body(response, headers),
        )


def _joined(value: Any) -> str:
    items = value if isinstance(value, list) else [value]
    return ", ".join(one.decode() if isinstance(one, bytes) else str(one) for one in items)


def _body(side: dict[str, Any], headers: dict[str, str]) -> bytes:
    if "parsed_body" in side:
        return json.dumps(side["parsed_body"], ensure_ascii=False).encode()
    body = side.get("body") or b""
    if isinstance(body, dict):
        body = body.get("string") or body.get("base64_string") or b""
    raw = body.encode() if isinstance(body, str) else bytes(body)
    if raw[:2] == b"\x1f\x8b":
        return gzip.decompress(raw)
    if "deflate" in headers.get("content-encoding", ""):
        try:
            return zlib.decompress(raw)
        except zlib.error:
            return raw
    if side.get("base64_string"):
        return base64.b64decode(side["base64_string"])
    return raw
