"""Variants of services that many know, each from its own description of its API.

A service that is not here starts from `GENERIC`. Where a service's documents are silent the field
is let through: the service itself then says that it does not take it, and no wish is lost unseen.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final
from urllib.parse import quote

import msgspec

from headrace.protocol.dialects.openai_chat.variant import OPENAI, SAMPLERS, Variant

_ENGINE = (OPENAI | SAMPLERS | {"video"}) - {"service_tier", "metadata", "hosted_tools"}

# platform.openai.com/docs/api-reference/chat
OPENAI_API = Variant(
    name="openai",
    max_tokens_field="max_completion_tokens",
    system_role="asked",
    effort_style="reasoning_effort",
    done_mark=True,
    refuses=frozenset({"reasoning", "thinking", "chat_template_kwargs", "enable_thinking"}),
    cache_marks="prompt_cache_breakpoint",
    prompt_cache_field="prompt_cache_key",
    base64_embeddings=True,
)


def azure(api_version: str | None = None) -> Variant:
    """Azure OpenAI: the paths of deployments with an `api_version`, /openai/v1 without one.

    Source: learn.microsoft.com/azure/ai-foundry/openai/reference and .../api-version-lifecycle.
    """
    below, query = "/openai/v1", ""
    if api_version is not None:
        below = "/openai/deployments/{model}"
        query = f"?api-version={quote(api_version, safe='')}"
    return msgspec.structs.replace(
        OPENAI_API,
        name="azure",
        chat_path=f"{below}/chat/completions{query}",
        completions_path=f"{below}/completions{query}",
        embeddings_path=f"{below}/embeddings{query}",
        takes=OPENAI - {"service_tier"},
        cache_marks="none",
    )


# console.groq.com/docs/api-reference and .../docs/openai ("not supported" there: logprobs,
# logit_bias, top_logprobs, messages[].name, n other than 1).
GROQ = Variant(
    name="groq",
    max_tokens_field="max_completion_tokens",
    thoughts="reasoning",
    effort_style="reasoning_effort",
    efforts=("none", "low", "medium", "high"),
    takes=OPENAI - {"logprobs", "top_logprobs", "logit_bias", "choices", "names", "audio"},
)

# api-docs.deepseek.com: no n, seed, logit_bias, images or json_schema; thinking on or off.
DEEPSEEK = Variant(
    name="deepseek",
    completions_path="/beta/completions",
    thoughts="reasoning_content",
    thoughts_with_calls=True,
    effort_style="thinking",
    done_mark=True,
    takes=OPENAI
    - {
        "choices",
        "seed",
        "logit_bias",
        "json_schema",
        "parallel_tool_calls",
        "modalities",
        "user",
        "metadata",
        "service_tier",
        "hosted_tools",
        "image",
        "audio",
        "document",
        "parts",
    },
)

# docs.z.ai: thinking {type}; one choice, auto tool choice.
ZAI = Variant(
    name="zai",
    thoughts="reasoning_content",
    effort_style="thinking",
    takes=(OPENAI | {"video"})
    - {
        "choices",
        "seed",
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "frequency_penalty",
        "presence_penalty",
        "json_schema",
        "strict",
        "parallel_tool_calls",
        "modalities",
        "metadata",
        "service_tier",
    },
)

# openrouter.ai/docs/api-reference
OPENROUTER = Variant(
    name="openrouter",
    system_role="asked",
    thoughts="reasoning_details",
    effort_style="reasoning",
    effort_takes_budget=True,
    takes=(OPENAI | SAMPLERS | {"video", "made_images"}) - {"choices"},
    cache_marks="cache_control",
)

# docs.x.ai/docs/api-reference
XAI = Variant(
    name="xai",
    max_tokens_field="max_completion_tokens",
    thoughts="reasoning_content",
    effort_style="reasoning_effort",
    efforts=("low", "high"),
    takes=OPENAI - {"logit_bias", "modalities", "audio", "metadata"},
)

# docs.together.ai/reference/chat-completions
TOGETHER = Variant(
    name="together",
    thoughts="reasoning",
    effort_style="reasoning_effort",
    efforts=("low", "medium", "high"),
    takes=(OPENAI | SAMPLERS | {"video"})
    - {"metadata", "service_tier", "modalities", "hosted_tools", "document", "user"},
    base64_embeddings=False,
)

# docs.fireworks.ai/api-reference
FIREWORKS = Variant(
    name="fireworks",
    thoughts="reasoning_content",
    effort_style="reasoning_effort",
    efforts=("none", "low", "medium", "high"),
    takes=(OPENAI | SAMPLERS | {"video"}) - {"modalities", "hosted_tools", "document"},
    prompt_cache_field="prompt_cache_isolation_key",
)

# inference-docs.cerebras.ai/api-reference: text alone; no penalties, no n.
CEREBRAS = Variant(
    name="cerebras",
    max_tokens_field="max_completion_tokens",
    thoughts="reasoning",
    effort_style="reasoning_effort",
    efforts=("none", "low", "medium", "high"),
    takes=OPENAI
    - {
        "choices",
        "frequency_penalty",
        "presence_penalty",
        "modalities",
        "metadata",
        "hosted_tools",
        "image",
        "audio",
        "document",
        "parts",
    },
)

# docs.vllm.ai, "OpenAI-compatible server". Templates of models take one system message, first.
VLLM = Variant(
    name="vllm",
    one_system_message=True,
    late_system=False,
    thoughts="reasoning_content",
    effort_style="chat_template_kwargs",
    efforts=("none", "low", "medium", "high"),
    done_mark=True,
    takes=_ENGINE,
    prompt_cache_field="cache_salt",
    base64_embeddings=True,
)

# docs.sglang.ai, "OpenAI APIs"
SGLANG = msgspec.structs.replace(VLLM, name="sglang", base64_embeddings=False)

# docs/api.md: what the server does not take yet it refuses itself, by name.
HEADRACE = msgspec.structs.replace(SGLANG, name="headrace")

# github.com/ggml-org/llama.cpp, tools/server/README.md
LLAMA_CPP = Variant(
    name="llama.cpp",
    one_system_message=True,
    late_system=False,
    thoughts="reasoning_content",
    effort_style="chat_template_kwargs",
    efforts=("none", "low", "medium", "high"),
    done_mark=True,
    takes=_ENGINE - {"names", "document"},
    base64_embeddings=True,
)

# github.com/ollama/ollama, docs/openai.md
OLLAMA = Variant(
    name="ollama",
    one_system_message=True,
    thoughts="reasoning",
    effort_style="reasoning_effort",
    efforts=("none", "low", "medium", "high"),
    done_mark=True,
    takes=OPENAI
    - {
        "tool_choice",
        "parallel_tool_calls",
        "logit_bias",
        "choices",
        "user",
        "modalities",
        "metadata",
        "service_tier",
        "hosted_tools",
        "names",
        "audio",
        "document",
    },
    base64_embeddings=True,
)

# ai.google.dev/gemini-api/docs/openai
GOOGLE = Variant(
    name="google",
    effort_style="reasoning_effort",
    efforts=("none", "minimal", "low", "medium", "high"),
    takes=OPENAI
    - {"logit_bias", "logprobs", "top_logprobs", "user", "metadata", "service_tier", "names"},
    google_signatures=True,
    gap_is_thoughts=True,
)

GENERIC = Variant(
    name="generic",
    thoughts="reasoning_content",
    effort_style="reasoning_effort",
    takes=OPENAI | SAMPLERS | {"video"},
)

PRESETS: Final = MappingProxyType(
    {
        variant.name: variant
        for variant in (
            OPENAI_API,
            azure(),
            GROQ,
            DEEPSEEK,
            ZAI,
            OPENROUTER,
            XAI,
            TOGETHER,
            FIREWORKS,
            CEREBRAS,
            VLLM,
            SGLANG,
            HEADRACE,
            LLAMA_CPP,
            OLLAMA,
            GOOGLE,
            GENERIC,
        )
    }
)
"""The presets by name; "azure" is the one without an API version."""
