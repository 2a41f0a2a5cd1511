"""OpenAI chat completions and embeddings as providers speak them, each its variant."""

from __future__ import annotations

from headrace.protocol.dialects.openai_chat import embeddings
from headrace.protocol.dialects.openai_chat.reply import failures, glance, read_reply
from headrace.protocol.dialects.openai_chat.reply.stream_reader import ChatStreamReader
from headrace.protocol.dialects.openai_chat.request import write_call
from headrace.protocol.dialects.openai_chat.values import DIALECT
from headrace.protocol.dialects.openai_chat.variant import Variant
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.dialect import EncodedRequest, Headers, UsageSummary
from headrace.protocol.neutral.embedding import EmbeddingCall, EmbeddingExchange, EmbeddingReply
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.reply import ChatReply


class OpenAIChatProvider:
    """A `ProviderSide` and an `EmbeddingProvider` for services of one variant."""

    name: str = DIALECT

    def __init__(self, variant: Variant) -> None:
        self.variant = variant

    @property
    def prompt_cache_field(self) -> str | None:
        """See PromptCacheSide."""
        return self.variant.prompt_cache_field

    def write_call(self, call: ChatCall, model: str) -> EncodedRequest:
        """`call` for the provider's `model`; raises RequestError if it cannot be said at all."""
        return write_call.write_call(call, model, self.variant)

    def read_reply(self, body: bytes) -> ChatReply:
        """Raises DamagedReplyError if it is none."""
        return read_reply.read_reply(body, gap_is_thoughts=self.variant.gap_is_thoughts)

    def glance(self, body: bytes) -> UsageSummary | None:
        """Usage and finish reason; None if only `read_reply` can find them."""
        return glance.glance(body, gap_is_thoughts=self.variant.gap_is_thoughts)

    def stream_reader(self, call: ChatCall) -> ChatStreamReader:
        """A reader for one answer."""
        several = call.choices if "choices" in self.variant.takes else None
        return ChatStreamReader(
            done_mark=self.variant.done_mark,
            choices=several or 1,
            gap_is_thoughts=self.variant.gap_is_thoughts,
        )

    def read_failure(self, status: int, headers: Headers, body: bytes) -> Failure:
        """Any body at all."""
        return failures.read_failure(status, headers, body)

    def write_embeddings(self, call: EmbeddingCall, model: str) -> EmbeddingExchange:
        """One request for all inputs."""
        return embeddings.write_embeddings(call, model, self.variant)

    def read_embeddings(self, bodies: tuple[bytes, ...]) -> EmbeddingReply:
        """Raises DamagedReplyError if they are none."""
        return embeddings.read_embeddings(bodies)
