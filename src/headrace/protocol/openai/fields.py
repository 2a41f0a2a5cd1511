"""What each endpoint takes: the one table of fields that OpenAI or vLLM have and headrace does not.

A row says which values are harmless. A field without such values is refused whenever it is given;
a field in no table and in no struct is unknown, and unknown fields are accepted and reported.
Sources: OpenAI's openapi.yaml (August 2026) and vLLM's protocol (2026).
"""

from __future__ import annotations

from headrace.protocol.openai.chat import (
    MESSAGE_KEYS,
    ChatCompletionRequest,
    check_chat,
)
from headrace.protocol.openai.completions import CompletionRequest, check_completion
from headrace.protocol.openai.tokenize import (
    DetokenizeRequest,
    TokenizeRequest,
    check_tokenize,
)
from headrace.protocol.request import Endpoint, Known, Nested

_REFUSED: tuple[object, ...] = ()
_TEXT_FORMAT = {"type": "text"}


def _table(*rows: Known) -> dict[str, Known]:
    return {row.name: row for row in rows}


_GENERATION = _table(
    Known("n", (1,), "one choice per prompt"),
    Known("frequency_penalty", (0,), "no penalty"),
    Known("presence_penalty", (0,), "no penalty"),
    Known("repetition_penalty", (1,), "no penalty"),
    Known("logit_bias", ({},), "no bias"),
    Known("min_tokens", (0,), "no minimum"),
    Known("response_format", (_TEXT_FORMAT,), "free text"),
    Known("structured_outputs", _REFUSED, ""),
    Known("guided_json", _REFUSED, ""),
    Known("guided_regex", _REFUSED, ""),
    Known("guided_choice", _REFUSED, ""),
    Known("guided_grammar", _REFUSED, ""),
    Known("guided_decoding_backend", _REFUSED, ""),
    Known("guided_whitespace_pattern", _REFUSED, ""),
    Known("use_beam_search", (False,), "sampling"),
    Known("length_penalty", (1,), "matters to beam search only"),
    Known("early_stopping", (False,), "matters to beam search only"),
    Known("echo", (False,), "the prompt is not repeated"),
    Known("prompt_logprobs", _REFUSED, ""),
    Known("allowed_token_ids", _REFUSED, ""),
    Known("bad_words", ([],), "nothing is forbidden"),
    Known("logits_processors", ([],), "none"),
    Known("spaces_between_special_tokens", (True,), "text is joined as the tokenizer does"),
    Known("truncate_prompt_tokens", _REFUSED, ""),
    Known("return_tokens_as_token_ids", (False,), "tokens are named by their text"),
    Known("priority", (0,), "first come, first served"),
    Known("kv_transfer_params", _REFUSED, ""),
    Known("vllm_xargs", ({},), "none"),
    Known("user", str, "a label of the caller's"),
    Known("metadata", dict, "a label of the caller's"),
    Known("store", (False,), "nothing is stored"),
    Known("request_id", str, "a label of the caller's; the reply has an id of its own"),
    Known("session_id", str, "a label of the caller's"),
)

CHAT_KNOWN = _GENERATION | _table(
    Known("tools", ([],), "no tools"),
    Known("tool_choice", ("none", "auto"), "no tools to choose from"),
    Known("parallel_tool_calls", bool, "no tools to call"),
    Known("functions", ([],), "no functions"),
    Known("function_call", ("none", "auto"), "no functions to choose from"),
    Known("service_tier", ("auto", "default"), "there is one tier"),
    Known("modalities", (["text"],), "text"),
    Known("audio", _REFUSED, ""),
    Known("prediction", _REFUSED, ""),
    Known("web_search_options", _REFUSED, ""),
    Known("moderation", _REFUSED, ""),
    Known("verbosity", ("medium",), "OpenAI's default"),
    Known("prompt_cache_key", str, "the prefix cache finds equal prompts without it"),
    Known("prompt_cache_retention", str, "blocks are evicted least recently used first"),
    Known("prompt_cache_options", dict, "blocks are evicted least recently used first"),
    Known("safety_identifier", str, "a label of the caller's"),
    Known("best_of", (1,), "one choice per prompt"),
    Known("documents", ([],), "none"),
    Known("mm_processor_kwargs", ({},), "there are no images"),
    Known("media_io_kwargs", ({},), "there are no images"),
    Known("include_reasoning", (True,), "reasoning is part of the text"),
    Known("thinking_token_budget", _REFUSED, ""),
)

COMPLETION_KNOWN = _GENERATION | _table(
    Known("best_of", (1,), "one choice per prompt"),
    Known("suffix", ("",), "nothing follows"),
    Known("prompt_embeds", _REFUSED, ""),
)

TOKENIZE_KNOWN = _table(
    Known("tools", ([],), "no tools"),
    Known("mm_processor_kwargs", ({},), "there are no images"),
)

STREAM_OPTIONS_KNOWN = _table(
    Known("include_obfuscation", (False,), "events are not padded"),
    Known("continuous_usage_stats", (False,), "usage comes with the last event"),
)

MESSAGE_KNOWN = _table(
    Known("audio", _REFUSED, ""),
    Known("function_call", _REFUSED, ""),
    Known("refusal", _REFUSED, ""),
    Known("annotations", list, "notes of another server's"),
)

_STREAM_OPTIONS = Nested(frozenset({"include_usage"}), STREAM_OPTIONS_KNOWN)
_MESSAGES = Nested(
    MESSAGE_KEYS,
    MESSAGE_KNOWN,
    {"content": Nested(frozenset({"type", "text"}))},
)

CHAT = Endpoint(
    "/v1/chat/completions",
    ChatCompletionRequest,
    CHAT_KNOWN,
    {"stream_options": _STREAM_OPTIONS, "messages": _MESSAGES},
    check_chat,
)
COMPLETIONS = Endpoint(
    "/v1/completions",
    CompletionRequest,
    COMPLETION_KNOWN,
    {"stream_options": _STREAM_OPTIONS},
    check_completion,
)
TOKENIZE = Endpoint(
    "/tokenize", TokenizeRequest, TOKENIZE_KNOWN, {"messages": _MESSAGES}, check_tokenize
)
DETOKENIZE = Endpoint("/detokenize", DetokenizeRequest)
ENDPOINTS = (CHAT, COMPLETIONS, TOKENIZE, DETOKENIZE)
