"""The paths for requests to models, each with its dialect.

A path is made, and its dialect imported, at the first request: a gateway that serves one of them
starts without the others. `run` has all made once the gateway answers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from headrace.gateway.access import Access
from headrace.gateway.app import ChatPath, Post
from headrace.gateway.building.dialects import client_side
from headrace.gateway.building.late import Late
from headrace.gateway.routing.router import Router
from headrace.gateway.serving.embedding_request import EmbeddingClient
from headrace.gateway.serving.serving import Serving
from headrace.gateway.settings.ledger import LedgerSettings

if TYPE_CHECKING:
    from headrace.gateway.prompts.prompts import Prompts

T = TypeVar("T")

_ALSO_UNDER_API = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/responses/input_tokens",
    "/v1/embeddings",
)


class Paths(NamedTuple):
    """The paths of the data port."""

    chats: Late[ChatPath]
    """Answered by a model, possibly in a stream."""
    posts: Late[Post]
    """Answered as a whole."""

    def make_all(self) -> None:
        """Make all paths, so that no request waits for an import."""
        for made in self:
            for name in made:
                _ = made[name]


def paths_of(
    serving: Serving,
    access: Access,
    ledger: LedgerSettings,
    folder: Path,
    prompts: Prompts | None = None,
) -> Paths:
    """folder: of the gateway's file."""
    chats: dict[str, Callable[[], ChatPath]] = {
        "/v1/chat/completions": lambda: ChatPath(client_side("openai-chat")),
        "/v1/completions": lambda: ChatPath(client_side("openai-completions")),
        "/v1/responses": lambda: ChatPath(client_side("openai-responses")),
        "/v1/messages": lambda: ChatPath(client_side("anthropic")),
        "/api/chat": _ollama_chat,
        "/api/generate": _ollama_generate,
    }
    posts: dict[str, Callable[[], Post]] = {
        "/v1/messages/count_tokens": lambda: _anthropic_count(serving, access, prompts),
        "/v1/responses/input_tokens": lambda: _responses_count(serving, access, prompts),
        "/v1/embeddings": lambda: _embeddings(serving, access, "openai-chat"),
        "/v1/feedback": lambda: _feedback(serving, access, ledger, folder),
        "/api/embed": lambda: _embeddings(serving, access, "ollama"),
        "/api/show": lambda: _show(serving.router, access),
    }
    return Paths(_late(chats), _late(posts))


def _late(makers: dict[str, Callable[[], T]]) -> Late[T]:
    """OpenRouter's clients ask under /api/v1: the same is there."""
    late = Late(makers)
    also = {f"/api{name}": functools.partial(late.__getitem__, name) for name in _ALSO_UNDER_API
            if name in makers}  # fmt: skip
    return Late({**{name: functools.partial(late.__getitem__, name) for name in makers}, **also})


def _ollama_chat() -> ChatPath:
    from headrace.gateway.building.own_bodies import loaded_model, ollama_at

    side = client_side("ollama")
    return ChatPath(side, stream_default=True, side_at=ollama_at, own=loaded_model)


def _ollama_generate() -> ChatPath:
    from headrace.gateway.building.own_bodies import loaded_model, ollama_generate_at
    from headrace.protocol.dialects.ollama.generate import GENERATE

    side = client_side(GENERATE)
    return ChatPath(side, stream_default=True, side_at=ollama_generate_at, own=loaded_model)


def _anthropic_count(serving: Serving, access: Access, prompts: Prompts | None) -> Post:
    from headrace.gateway.count_posts import CountPost
    from headrace.protocol.dialects.anthropic.reply.write_reply import write_token_count

    return CountPost(serving, access, client_side("anthropic"), write_token_count, prompts)


def _responses_count(serving: Serving, access: Access, prompts: Prompts | None) -> Post:
    from headrace.gateway.count_posts import CountPost
    from headrace.protocol.dialects.openai_responses.count_tokens import write_token_count

    side = client_side("openai-responses")
    return CountPost(serving, access, side, write_token_count, prompts)


def _embeddings(serving: Serving, access: Access, dialect: str) -> Post:
    from headrace.gateway.embedding_posts import EmbeddingPost

    side = client_side(dialect)
    return EmbeddingPost(serving, access, side, cast("EmbeddingClient", side))


def _feedback(serving: Serving, access: Access, ledger: LedgerSettings, folder: Path) -> Post:
    from headrace.gateway.building.feedback import feedback_post

    return feedback_post(ledger, folder, access, client_side("openai-chat"), serving.wall_s)


def _show(router: Router, access: Access) -> Post:
    from headrace.gateway.ollama_posts import ShowPost

    return ShowPost(router, access, client_side("ollama"))
