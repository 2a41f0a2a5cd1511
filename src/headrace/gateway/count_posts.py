"""Paths on which clients ask how many tokens a prompt has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from headrace.errors import RequestError
from headrace.gateway.access import Access
from headrace.gateway.guards.blocked import FIELD
from headrace.gateway.guards.guarded_sink import GUARDRAILS_HEADER
from headrace.gateway.routing.ask import ask_of
from headrace.gateway.serving.count import CountAsked, count
from headrace.gateway.serving.entry import Operation
from headrace.gateway.serving.guarded import PROMPT_HEADER, screened
from headrace.gateway.serving.prepared import forwarded_headers
from headrace.gateway.serving.reply_headers import PREFIX, visible
from headrace.gateway.serving.serve import Serving
from headrace.protocol.json_object import JsonObject
from headrace.protocol.neutral.dialect import ClientSide

if TYPE_CHECKING:
    from headrace.gateway.prompts.prompts import Prompts


class CountPost:
    """A path of one dialect. side: what bodies and errors are written in; write: the reply.
    prompts: those of the file, None where it has none. Guardrails look at what is counted: a
    provider gets to see it."""

    operation: Operation | None = None

    def __init__(
        self,
        serving: Serving,
        access: Access,
        side: ClientSide,
        write: Callable[[int], bytes],
        prompts: Prompts | None = None,
    ) -> None:
        self._serving = serving
        self._access = access
        self._write = write
        self._prompts = prompts
        self.side = side

    async def __call__(
        self, body: bytes, path: str, headers: Mapping[str, str], request_id: str, received_ns: int
    ) -> tuple[bytes, list[tuple[str, str]]]:
        """See `headrace.gateway.app.Post`."""
        serving, caller = self._serving, self._access.caller(headers)
        read, prompt = JsonObject.read(body), ""
        if self._prompts is not None:
            key = None if caller is None else caller.key_id
            read, prompt = self._prompts.applied(self.side.name, read, headers, key, request_id)
        model = read.text("model")
        if not model:
            raise RequestError("model: a name is required", param="model", code="missing_model")
        told: list[tuple[str, str]] = [(PROMPT_HEADER, prompt)] if prompt else []
        if serving.guardrails is not None or FIELD in read:
            models = ask_of(read, model, by_prefix=False).wanted.models
            screen = await screened(
                serving.guardrails, serving.router, self.side.name, read, models, caller, request_id
            )
            if screen.refusal is not None:
                raise screen.refusal
            read = screen.body
            if screen.acted:
                told.append((GUARDRAILS_HEADER, "; ".join(screen.acted)))
        counted = await count(
            serving,
            CountAsked(
                dialect=self.side.name,
                model=model,
                body=read,
                call=lambda raw: self.side.read_call(raw, path, headers),
                headers=forwarded_headers(self.side.name, headers),
                caller=caller,
            ),
        )
        target = counted.target
        told.append((PREFIX + "count", "estimate" if target is None else "provider"))
        if target is not None:
            told += [
                (PREFIX + "provider", target.provider.name),
                (PREFIX + "target", visible(target.name)),
            ]
        return self._write(counted.tokens), told
