"""The provider side of the Messages API: Anthropic, and compatible servers.

Base URL https://api.anthropic.com; the key goes into the header x-api-key, which is the caller's
to set. anthropic-version and anthropic-beta are among the headers written here.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.protocol.dialects.anthropic.reply.failures import read_failure
from headrace.protocol.dialects.anthropic.reply.read_reply import read_reply, read_token_count
from headrace.protocol.dialects.anthropic.reply.stream_reader import AnthropicStreamReader
from headrace.protocol.dialects.anthropic.request.model_rules import ModelRules, rules_of
from headrace.protocol.dialects.anthropic.request.write_call import write_call, write_count
from headrace.protocol.dialects.anthropic.values import NAME
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.dialect import EncodedRequest, Headers
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.reply import ChatReply


@dataclass(frozen=True)
class AnthropicProvider:
    """The ProviderSide of Anthropic's Messages API, with token counting."""

    default_max_tokens: int | None = None
    """The most the model writes, for calls that do not limit the answer; None for 4,096 plus the
    budget of thoughts."""
    rules: ModelRules | None = None
    """What the model's requests may contain; None for what its name implies."""
    name: str = NAME

    def write_call(self, call: ChatCall, model: str) -> EncodedRequest:
        """`call` for the provider's `model`; raises RequestError if it cannot be said at all."""
        return write_call(call, model, self._rules(model), self.default_max_tokens)

    def read_reply(self, body: bytes) -> ChatReply:
        """Raises DamagedReplyError if it is none."""
        return read_reply(body)

    def stream_reader(self, call: ChatCall) -> AnthropicStreamReader:
        """A reader for one answer."""
        return AnthropicStreamReader()

    def read_failure(self, status: int, headers: Headers, body: bytes) -> Failure:
        """Any body at all: what does not parse gives a Failure by the status alone."""
        return read_failure(status, headers, body)

    def write_count(self, call: ChatCall, model: str) -> EncodedRequest:
        """A request for the number of tokens of `call`."""
        return write_count(call, model, self._rules(model))

    def read_token_count(self, body: bytes) -> int:
        """The number that came back; raises DamagedReplyError if there is none."""
        return read_token_count(body)

    def _rules(self, model: str) -> ModelRules:
        return rules_of(model) if self.rules is None else self.rules


PROVIDER = AnthropicProvider()
