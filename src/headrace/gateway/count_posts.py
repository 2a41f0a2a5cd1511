"""Paths on which clients ask how many tokens a prompt has."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.errors import RequestError
from headrace.gateway.access import Access
from headrace.gateway.serving.count import CountAsked, count
from headrace.gateway.serving.entry import Operation
from headrace.gateway.serving.prepared import forwarded_headers
from headrace.gateway.serving.reply_headers import PREFIX, visible
from headrace.gateway.serving.serve import Serving
from headrace.protocol.json_object import JsonObject
from headrace.protocol.neutral.dialect import ClientSide


class CountPost:
    """A path of one dialect. side: what bodies and errors are written in; write: the reply."""

    operation: Operation | None = None

    def __init__(
        self, serving: Serving, access: Access, side: ClientSide, write: Callable[[int], bytes]
    ) -> None:
        self._serving = serving
        self._access = access
        self._write = write
        self.side = side

    async def __call__(
        self, body: bytes, path: str, headers: Mapping[str, str], request_id: str, received_ns: int
    ) -> tuple[bytes, list[tuple[str, str]]]:
        """See `headrace.gateway.app.Post`."""
        read = JsonObject.read(body)
        model = read.text("model")
        if not model:
            raise RequestError("model: a name is required", param="model", code="missing_model")
        counted = await count(
            self._serving,
            CountAsked(
                dialect=self.side.name,
                model=model,
                body=read,
                call=lambda raw: self.side.read_call(raw, path, headers),
                headers=forwarded_headers(self.side.name, headers),
                caller=self._access.caller(headers),
            ),
        )
        target = counted.target
        told = [(PREFIX + "count", "estimate" if target is None else "provider")]
        if target is not None:
            told += [
                (PREFIX + "provider", target.provider.name),
                (PREFIX + "target", visible(target.name)),
            ]
        return self._write(counted.tokens), told
