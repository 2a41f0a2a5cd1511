"""OpenAI's older completions (POST /completions): text or token ids in, text out.

`CLIENT` speaks with clients. A provider that has the API gets their bodies as they came, and
`REPLIES` reads what it answers; for one that has chat alone `beyond_chat` says what of a request
no chat can be told.
"""

from headrace.protocol.dialects.openai_completions.beyond_chat import beyond_chat
from headrace.protocol.dialects.openai_completions.client import CLIENT, OpenAICompletionsClient
from headrace.protocol.dialects.openai_completions.replies import REPLIES, OpenAICompletionsReplies
from headrace.protocol.dialects.openai_completions.values import DIALECT

__all__ = [
    "CLIENT",
    "DIALECT",
    "REPLIES",
    "OpenAICompletionsClient",
    "OpenAICompletionsReplies",
    "beyond_chat",
]
