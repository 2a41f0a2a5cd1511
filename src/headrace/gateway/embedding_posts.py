"""Paths on which clients ask for embeddings."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.gateway.access import Access
from headrace.gateway.serving.embed import Asked, EmbeddingClient, embed
from headrace.gateway.serving.reply_headers import PREFIX, cost_header
from headrace.gateway.serving.serve import Serving
from headrace.gateway.targets.target import Target
from headrace.protocol.neutral.dialect import ClientSide
from headrace.protocol.neutral.embedding import EmbeddingProvider


class EmbeddingPost:
    """A path of one dialect. side: what errors are written in; client: what vectors are."""

    def __init__(
        self, serving: Serving, access: Access, side: ClientSide, client: EmbeddingClient
    ) -> None:
        self._serving = serving
        self._access = access
        self._client = client
        self.side = side

    async def __call__(
        self, body: bytes, path: str, headers: Mapping[str, str], request_id: str, received_ns: int
    ) -> tuple[bytes, list[tuple[str, str]]]:
        """See `headrace.gateway.app.Post`."""
        call = self._client.read_embedding_call(body, path, headers)
        asked = Asked(
            id=request_id,
            dialect=self._client.name,
            call=call,
            caller=self._access.caller(headers),
            received_ns=received_ns,
        )
        embedded = await embed(self._serving, asked, _side_of)
        told = [
            (PREFIX + "provider", embedded.target.provider.name),
            (PREFIX + "attempts", str(embedded.attempts)),
            cost_header(embedded.cost_nusd),
        ]
        return self._client.write_embedding_reply(embedded.reply, call), told


def _side_of(target: Target) -> EmbeddingProvider | None:
    return target.provider.embeddings
