"""The fields of a request that say how to answer and hold no text for the model, in any dialect.

What is not among them, is looked at: engines read fields that no API describes, such as a chat
template, and dialects get new ones.
"""

from __future__ import annotations

SETTINGS = frozenset(
    (
        # Who asks, which conversation and cache it is of, and what is kept beside it.
        "user", "metadata", "safety_identifier", "session_id", "trace", "conversation",
        "previous_response_id", "prompt_cache_key", "prompt_cache_retention",
        "prompt_cache_options",
        "cache", "cache_control", "store", "keep_alive",
        # Models, providers and rules, by name.
        "model", "models", "fallbacks", "provider", "route", "preset", "transforms", "service_tier",
        "speed", "inference_geo", "guardrails", "anthropic_version", "anthropic_beta", "betas",
        # How the answer is written and sent.
        "stream", "stream_options", "include", "truncation", "truncate", "verbosity", "modalities",
        "audio", "encoding_format", "input_type", "usage", "background",
        # Thinking, and tools by name: those are for rules about tools.
        "reasoning", "reasoning_effort", "thinking", "think", "tool_choice", "function_call",
        "mcp_servers",
        # Ids of tokens.
        "context", "logit_bias",
    )
)  # fmt: skip
