"""OpenAI's Responses API, POST /v1/responses: clients and providers."""

from headrace.protocol.dialects.openai_responses.client import OpenAIResponsesClient
from headrace.protocol.dialects.openai_responses.provider import OpenAIResponsesProvider
from headrace.protocol.dialects.openai_responses.state import needs_state

CLIENT = OpenAIResponsesClient()
PROVIDER = OpenAIResponsesProvider()

__all__ = ["CLIENT", "PROVIDER", "OpenAIResponsesClient", "OpenAIResponsesProvider", "needs_state"]
