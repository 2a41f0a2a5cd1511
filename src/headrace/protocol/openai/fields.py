"""The fields of each endpoint: the one table of fields that others have and headrace does not.

A row says which values are harmless, and which are only hints: of style or of service, without
which the answer serves as well. A field without either is refused whenever it is given; a field in
no table and in no struct is unknown, and unknown fields are accepted and reported.
Others are OpenAI (openapi.yaml, August 2026), and vLLM, SGLang (their protocols, 2026) and
llama-server (its README, 2026), of whose own fields those are here that change what comes out.
"""

from __future__ import annotations

from headrace.protocol.openai.apply_template import ApplyTemplateRequest, check_apply_template
from headrace.protocol.openai.chat import (
    MESSAGE_KEYS,
    PARTS,
    ChatCompletionRequest,
    check_chat,
)
from headrace.protocol.openai.completions import CompletionRequest, check_completion
from headrace.protocol.openai.tokenize import (
    DetokenizeRequest,
    TokenizeRequest,
    check_tokenize,
)
from headrace.protocol.openai.tools import check_tool_shape
from headrace.protocol.request import Endpoint, Known, Nested

_REFUSED: tuple[object, ...] = ()
# OpenAI's classes of service beside the ordinary one.
_TIERS = ("flex", "priority", "scale")


def _table(*rows: Known) -> dict[str, Known]:
    return {row.name: row for row in rows}


_GENERATION = _table(
    Known("guided_decoding_backend", str, "there is one"),
    Known("use_beam_search", (False,), "sampling"),
    Known("length_penalty", (1,), "matters to beam search only"),
    Known("early_stopping", (False,), "matters to beam search only"),
    Known("logits_processors", ([],), "none"),
    Known("spaces_between_special_tokens", (True,), "text is joined as the tokenizer does"),
    Known("kv_transfer_params", _REFUSED, ""),
    Known("vllm_xargs", ({},), "none"),
    Known("truncation_side", ("left",), "the last tokens of a prompt are kept"),
    Known("logprob_token_ids", ([],), "none; `prompt_logprobs` of prompt and label has them"),
    Known("repetition_detection", _REFUSED, ""),
    Known("watermarking", (False,), "off"),
    Known("ec_transfer_params", _REFUSED, ""),
    Known("return_prompt_text", (False,), "it is not repeated", "`/apply-template`"),
    Known("user", str, "a label of the caller's"),
    Known("metadata", dict, "a label of the caller's"),
    Known("store", (False,), "completions are not kept", hints=(True,)),
    Known("session_id", str, "a label of the caller's"),
    Known("n_predict", _REFUSED, "", "`max_tokens`"),
    Known("n_probs", (0,), "none", "`logprobs`"),
    Known("post_sampling_probs", (False,), "log probabilities are the model's own"),
    Known("n_cmpl", (1,), "one", "`n`"),
    Known("n_indent", (0,), "any indentation"),
    Known("min_keep", (0,), "none"),
    Known("t_max_predict_ms", (0, -1), "no limit", "`timeout_s`"),
    Known("adaptive_target", (-1,), "off"),
    Known("grammar_lazy", (False,), "a grammar holds from the first token"),
    Known("grammar_triggers", ([],), "none"),
    Known("cache_prompt", bool, "caching changes no output"),
    Known("repeat_penalty", (1,), "none", "`repetition_penalty`"),
    Known("typical_p", (1,), "keeps all", "`min_p` or `top_p`"),
    Known("mirostat", (0,), "off", "`temperature`"),
    Known("dry_multiplier", (0,), "off"),
    Known("xtc_probability", (0,), "off"),
    Known("dynatemp_range", (0,), "off"),
    Known("top_n_sigma", (-1,), "off", "`min_p`"),
    Known("lora", ([],), "none"),
    Known("lora_path", _REFUSED, ""),
    Known("stop_regex", ([], ""), "none"),
    Known("no_stop_trim", (False,), "stop strings are cut off", "`include_stop_str_in_output`"),
    Known("return_hidden_states", (False,), "none"),
    Known("return_routed_experts", (False,), "none"),
    Known("custom_logit_processor", _REFUSED, ""),
    Known("session_params", _REFUSED, ""),
    Known("prompt_embeds", _REFUSED, ""),
)

CHAT_KNOWN = _GENERATION | _table(
    Known("functions", ([],), "no functions; others are read as `tools`"),
    Known("function_call", ("none", "auto"), "no functions to choose from", "`tool_choice`"),
    Known("service_tier", ("auto", "default"), "there is one tier", hints=_TIERS),
    Known("modalities", (["text"],), "text"),
    Known("audio", _REFUSED, ""),
    Known("prediction", _REFUSED, "speculation makes its own guesses", hints=dict),
    Known("web_search_options", _REFUSED, ""),
    Known("moderation", _REFUSED, ""),
    Known("verbosity", ("medium",), "OpenAI's default", hints=("low", "high")),
    Known("prompt_cache_key", str, "the prefix cache finds equal prompts without it"),
    Known("prompt_cache_retention", str, "blocks are evicted least recently used first"),
    Known("prompt_cache_options", dict, "blocks are evicted least recently used first"),
    Known("safety_identifier", str, "a label of the caller's"),
    Known("best_of", (1,), "conversations always return all answers"),
    Known("echo", (False,), "the conversation is not repeated"),
    Known("documents", ([],), "none"),
    Known("mm_processor_kwargs", ({},), "there are no images"),
    Known("media_io_kwargs", ({},), "there are no images"),
    Known("prompt_token_ids", _REFUSED, "", "`prompt` of `/v1/completions`"),
    Known("input_ids", _REFUSED, "", "`prompt` of `/v1/completions`"),
    Known("separate_reasoning", (True,), "reasoning is a field of its own"),
    Known("stream_reasoning", (True,), "reasoning is streamed as it comes"),
    Known("reasoning_format", ("auto", "deepseek"), "reasoning is a field of its own"),
    Known("reasoning_in_content", (False,), "reasoning is a field of its own"),
    Known("thinking_budget_tokens", (-1,), "no limit", "`thinking_token_budget`"),
    Known("thinking_forced_open", (False,), "the prompt shows whether reasoning is open"),
    Known("parse_tool_calls", (True,), "calls are read where `tools` are given"),
)

COMPLETION_KNOWN = _GENERATION | _table(
    Known("suffix", ("",), "nothing follows", "`/infill`"),
)

_TEMPLATE_KNOWN = _table(
    Known("mm_processor_kwargs", ({},), "there are no images"),
)

TOKENIZE_KNOWN = _TEMPLATE_KNOWN | _table(
    Known("parse_special", (True,), "special tokens in a text are read as such"),
    Known("with_pieces", (False,), "ids alone", "`return_token_strs`"),
)

STREAM_OPTIONS_KNOWN = _table(
    Known("include_obfuscation", (False,), "events are not padded", hints=(True,)),
)

MESSAGE_KNOWN = _table(
    Known("audio", _REFUSED, ""),
    Known("function_call", _REFUSED, "", "`tool_calls`"),
    Known("annotations", list, "notes of another server's"),
)

_TOOLS = Nested(
    frozenset({"type", "function"}),
    {},
    {"function": Nested(frozenset({"name", "description", "parameters", "strict"}))},
    check_tool_shape,
)
_STREAM_OPTIONS = Nested(
    frozenset({"include_usage", "continuous_usage_stats"}), STREAM_OPTIONS_KNOWN
)
_MESSAGES = Nested(
    MESSAGE_KEYS,
    MESSAGE_KNOWN,
    {"content": Nested(frozenset({"type", *PARTS}))},
)

_REASONING = Nested(
    frozenset({"effort", "max_tokens", "exclude", "enabled"}),
    _table(
        Known("summary", str, "reasoning is returned as it is"),
        Known("generate_summary", str, "reasoning is returned as it is"),
    ),
)

CHAT = Endpoint(
    "/v1/chat/completions",
    ChatCompletionRequest,
    CHAT_KNOWN,
    {
        "stream_options": _STREAM_OPTIONS,
        "messages": _MESSAGES,
        "tools": _TOOLS,
        "reasoning": _REASONING,
    },
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
    "/tokenize",
    TokenizeRequest,
    TOKENIZE_KNOWN,
    {"messages": _MESSAGES, "tools": _TOOLS},
    check_tokenize,
)
DETOKENIZE = Endpoint("/detokenize", DetokenizeRequest)
APPLY_TEMPLATE = Endpoint(
    "/apply-template",
    ApplyTemplateRequest,
    _TEMPLATE_KNOWN,
    {"messages": _MESSAGES, "tools": _TOOLS},
    check_apply_template,
)
ENDPOINTS = (CHAT, COMPLETIONS, TOKENIZE, DETOKENIZE, APPLY_TEMPLATE)
