"""Embeds questions for the semantic cache like clients' texts: routed, timed out and billed.

A question is charged to the caller's account: budgets and limits on tokens hold, and the ledger has
a line for it. Limits on requests do not count it, and the key need not be allowed the embedding
model, since the gateway chose to embed.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headrace.errors import RequestError
from headrace.gateway.accounts.caller import Caller
from headrace.gateway.accounts.errors import AccountsError
from headrace.gateway.cache.semantic.arithmetic import normalised
from headrace.gateway.cache.semantic.cache import Embedded, EmbedderFailedError
from headrace.gateway.routing.preferences import read_wanted
from headrace.gateway.serving.embed import embed, embeddings_of
from headrace.gateway.serving.embedding_request import EmbeddingRequest
from headrace.gateway.serving.serving import Serving
from headrace.gateway.serving.target_failures import AllTargetsFailedError
from headrace.protocol.neutral.embedding import EmbeddingCall

_DIALECT = "openai-chat"
# Statuses that reject this text; the model accepts others.
_REFUSED = (400, 413, 422)
_OF_REQUESTS = ("rpm", "concurrency")


class QuestionEmbedder:
    """An Embedder that sends texts to `model`, as a client would name it, through the gateway."""

    def __init__(self, serving: Callable[[], Serving], model: str) -> None:
        self._serving = serving
        self._model = model

    async def __call__(self, text: str, caller: Caller | None, request_id: str) -> Embedded:
        """See Embedder."""
        serving = self._serving()
        asked = EmbeddingRequest(
            id=f"{request_id}/question",
            parent=request_id,
            purpose="cache",
            dialect=_DIALECT,
            call=EmbeddingCall(dialect=_DIALECT, model=self._model, inputs=(text,)),
            wanted=read_wanted(self._model, {}),
            caller=None if caller is None else _for_embedding(caller),
            received_ns=serving.clock_ns(),
        )
        try:
            found = await embed(serving, asked, embeddings_of)
        except AccountsError as error:
            raise EmbedderFailedError(str(error), is_callers=True) from error
        except RequestError as error:  # no target may see this caller's data, or there is none
            raise EmbedderFailedError(str(error), is_callers=True) from error
        except AllTargetsFailedError as error:
            refused = error.status in _REFUSED
            raise EmbedderFailedError(str(error), is_callers=refused) from error
        vector = normalised(found.reply.vectors[0]) if len(found.reply.vectors) == 1 else None
        if vector is None:
            told = f"{found.target.name} returned no vector for a text"
            raise EmbedderFailedError(told, is_callers=False)
        return Embedded(vector, found.target.name)


def _for_embedding(caller: Caller) -> Caller:
    meters = tuple(meter for meter in caller.meters if meter.limit_name not in _OF_REQUESTS)
    return msgspec.structs.replace(caller, allowed_models=(), meters=meters)
