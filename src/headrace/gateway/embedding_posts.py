"""Endpoints for embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from headrace.errors import RequestError
from headrace.gateway.access import Access
from headrace.gateway.guards.action import FIELD
from headrace.gateway.guards.guarded_sink import GUARDRAILS_HEADER
from headrace.gateway.guards.text_span import EMBEDDINGS
from headrace.gateway.held_bodies import key_of
from headrace.gateway.logged_post import Told, logged
from headrace.gateway.routing.preferences import Wanted
from headrace.gateway.routing.query import query_from_body
from headrace.gateway.serving.embed import embed, embeddings_of
from headrace.gateway.serving.embedding_request import EmbeddingClient, EmbeddingRequest
from headrace.gateway.serving.entry import Operation
from headrace.gateway.serving.error_detail import detail_for
from headrace.gateway.serving.guarded import Screened, screened
from headrace.gateway.serving.incoming import Incoming
from headrace.gateway.serving.prepared import without_ours
from headrace.gateway.serving.refused_line import note_refused
from headrace.gateway.serving.reply_headers import cost_header, way_headers
from headrace.gateway.serving.serving import Serving
from headrace.gateway.telemetry.tracing import UNTRACED, Moment, RequestTrace
from headrace.protocol.json_object import JsonObject
from headrace.protocol.neutral.dialect import ClientSide
from headrace.protocol.neutral.embedding import EmbeddingCall

if TYPE_CHECKING:
    from headrace.gateway.request_log.visit import PostVisit


class EmbeddingPost:
    """An endpoint of one dialect. `side` writes errors, `client` the vectors."""

    operation: Operation | None = "embeddings"

    def __init__(
        self, serving: Serving, access: Access, side: ClientSide, client: EmbeddingClient
    ) -> None:
        self._serving = serving
        self._access = access
        self._client = client
        self.side = side

    async def __call__(
        self, body: bytes, path: str, headers: Mapping[str, str], request_id: str, received_ns: int
    ) -> Told:
        """See `headrace.gateway.app.Post`."""
        serving, caller = self._serving, self._access.caller(headers)

        def parse() -> tuple[JsonObject, EmbeddingCall, Wanted]:
            read = JsonObject.read(body)
            call = self._client.read_embedding_call(without_ours(read), path, headers)
            return read, call, query_from_body(read, call.model, by_prefix=False).wanted

        try:
            read, call, wanted = await serving.large_bodies.result(key_of(caller), len(body), parse)
        except RequestError as error:
            note_refused(
                serving, self.side.name, "embeddings", request_id, caller, received_ns, 400,
                str(error),
            )  # fmt: skip
            raise
        incoming = Incoming(
            id=request_id, side=self.side, path=path, headers=headers, body=read,
            model=call.model, stream=False, received_ns=received_ns, caller=caller,
        )  # fmt: skip
        log = serving.request_log
        visit = None if log is None else log.post(incoming)
        answer = self._answer(incoming, call, wanted, visit)
        if visit is None:
            return await answer
        detail = detail_for(serving.error_detail, caller)
        return await logged(answer, visit, self.side, request_id, detail)

    async def _answer(
        self, incoming: Incoming, call: EmbeddingCall, wanted: Wanted, visit: PostVisit | None
    ) -> Told:
        serving, read = self._serving, incoming.body
        screen = Screened(read)
        if serving.guardrails is not None or FIELD in read:
            screen = await screened(
                serving.guardrails, serving.router, EMBEDDINGS, read, wanted.models,
                incoming.caller, incoming.id,
            )  # fmt: skip
            if screen.body is not read:
                read = screen.body
                call = self._client.read_embedding_call(
                    without_ours(read), incoming.path, incoming.headers
                )
                if visit is not None:
                    visit.asks(read)
        asked = EmbeddingRequest(
            id=incoming.id,
            dialect=self._client.name,
            call=call,
            wanted=wanted,
            headers=incoming.headers,
            caller=incoming.caller,
            received_ns=incoming.received_ns,
            body=read,
            trace=_trace(serving, incoming, read),
            guardrails=screen.acted,
            refusal=screen.refusal,
            on_entry=None if visit is None else visit.noted,
        )
        embedded = await embed(serving, asked, embeddings_of)
        told = [
            *way_headers(
                embedded.candidate, embedded.attempts, embedded.overhead_us, embedded.ignored
            ),
            cost_header(embedded.cost_nusd),
        ]
        if screen.acted:
            told.append((GUARDRAILS_HEADER, "; ".join(screen.acted)))
        if embedded.body is not None:
            return embedded.body, told
        return self._client.write_embedding_reply(embedded.reply, call), told


class _Traced(NamedTuple):
    id: str
    path: str
    headers: Mapping[str, str]
    body: JsonObject
    model: str
    stream: bool = False
    operation: Operation = "embeddings"


def _trace(serving: Serving, incoming: Incoming, body: JsonObject) -> RequestTrace:
    """The trace of a request; `body` is as guardrails left it."""
    tracing, headers = serving.tracing, incoming.headers
    if tracing.spans is None and "traceparent" not in headers:
        return UNTRACED
    traced = _Traced(incoming.id, incoming.path, headers, body, incoming.model)
    received_ns = incoming.received_ns
    since_ns = serving.clock_ns() - received_ns
    arrived_ns = int(serving.wall_s() * 1e9) - since_ns
    return tracing.began(traced, Moment(arrived_ns, received_ns, serving.clock_ns))
