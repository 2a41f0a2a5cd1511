"""Endpoints that count the tokens of a prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from headrace.errors import RequestError
from headrace.gateway.access import Access
from headrace.gateway.accounts.errors import AccountsError
from headrace.gateway.guards.action import FIELD
from headrace.gateway.guards.guarded_sink import GUARDRAILS_HEADER
from headrace.gateway.held_bodies import key_of
from headrace.gateway.logged_post import Header, Told, logged
from headrace.gateway.routing.model_name import read_name
from headrace.gateway.routing.query import query_from_body
from headrace.gateway.serving.count import CountAsked, TokenCount, count
from headrace.gateway.serving.count_line import count_line
from headrace.gateway.serving.entry import Operation
from headrace.gateway.serving.error_detail import detail_for
from headrace.gateway.serving.guarded import PROMPT_HEADER, screened
from headrace.gateway.serving.incoming import Incoming
from headrace.gateway.serving.prepared import forwarded_headers
from headrace.gateway.serving.refusals import refused
from headrace.gateway.serving.reply_headers import PREFIX, visible
from headrace.gateway.serving.serving import Serving
from headrace.gateway.serving.stored import check_stored
from headrace.protocol.field_case import check_case
from headrace.protocol.json_object import JsonObject
from headrace.protocol.neutral.dialect import ClientSide

if TYPE_CHECKING:
    from headrace.gateway.prompts.prompts import Prompts
    from headrace.gateway.request_log.visit import PostVisit


class CountPost:
    """An endpoint of one dialect that counts tokens.

    `side` parses bodies and writes errors; `write` writes the reply. `prompts` are the configured
    ones, None without. Guardrails check the prompt, as a provider gets to see it.
    """

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
    ) -> Told:
        """See `headrace.gateway.app.Post`."""
        serving, caller = self._serving, self._access.caller(headers)
        read = await serving.large_bodies.result(
            key_of(caller), len(body), lambda: JsonObject.read(body)
        )
        prompt = ""
        check_case(self.side.name, read)
        if self._prompts is not None:
            key = None if caller is None else caller.key_id
            read, prompt = self._prompts.applied(self.side.name, read, headers, key, request_id)
        incoming = Incoming(
            id=request_id, side=self.side, path=path, headers=headers, body=read,
            model=read_name(read), stream=False, received_ns=received_ns, caller=caller,
            prompt=prompt,
        )  # fmt: skip
        log = serving.request_log
        visit = None if log is None else log.post(incoming, counts=True)
        if visit is None:
            return self._written(*await self._count(incoming, None))
        detail = detail_for(serving.error_detail, caller)
        return await logged(self._noted(incoming, visit), visit, self.side, request_id, detail)

    async def _noted(self, incoming: Incoming, visit: PostVisit) -> Told:
        """As `__call__`, with a line in the request log."""
        line = partial(count_line, self._serving, incoming)
        try:
            counted, told = await self._count(incoming, visit)
        except (RequestError, AccountsError) as error:
            status, failure, outcome = refused(error)
            visit.noted(line(outcome, status, error=failure.message))
            raise
        except asyncio.CancelledError:
            visit.noted(line("client_gone", 0))
            raise
        visit.noted(line("answered", 200, target=counted.target))
        return self._written(counted, told)

    async def _count(
        self, incoming: Incoming, visit: PostVisit | None
    ) -> tuple[TokenCount, list[Header]]:
        """The count, with the headers of guardrails and prompts."""
        serving, read, caller = self._serving, incoming.body, incoming.caller
        path, headers, prompt = incoming.path, incoming.headers, incoming.prompt
        await check_stored(serving, incoming)
        told: list[Header] = [(PROMPT_HEADER, prompt)] if prompt else []
        if serving.guardrails is not None or FIELD in read:
            models = query_from_body(read, incoming.model, by_prefix=False).wanted.models
            screen = await screened(
                serving.guardrails, serving.router, self.side.name, read, models, caller,
                incoming.id,
            )  # fmt: skip
            if screen.refusal is not None:
                raise screen.refusal
            read = screen.body
            if visit is not None:
                visit.asks(read)
            if screen.acted:
                told.append((GUARDRAILS_HEADER, "; ".join(screen.acted)))
        counted = await count(
            serving,
            CountAsked(
                dialect=self.side.name,
                model=incoming.model,
                body=read,
                call=lambda raw: self.side.read_call(raw, path, headers),
                headers=forwarded_headers(self.side.name, headers),
                caller=caller,
            ),
        )
        return counted, told

    def _written(self, counted: TokenCount, told: list[Header]) -> Told:
        target = counted.target
        told.append((PREFIX + "count", "estimate" if target is None else "provider"))
        if target is not None:
            told += [
                (PREFIX + "provider", target.provider.name),
                (PREFIX + "target", visible(target.name)),
            ]
        return self._write(counted.tokens), told
