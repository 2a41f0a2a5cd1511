"""Fields of vLLM's SamplingParams and of requests over HTTP that do not exist here by name."""

from __future__ import annotations

from headrace.config.vllm.setting import (
    differs,
    not_there_yet,
    renamed,
    table,
    without_effect,
)

_BEAMS = "there is no beam search; answers are sampled"
_STREAM = "`stream` sends every token, `generate` the whole"
_CHOSEN = (
    "log probabilities of chosen tokens are not returned; those of the likeliest are, as many as "
    "logprobs says"
)

SAMPLING_PARAMS = table(
    renamed("stop", "stop strings are an argument of generate, chat and stream: stop=[...]"),
    renamed("bad_words", "here it is bad_words_token_ids, as token ids: llm.tokenizer encodes "
            "words"),
    renamed("truncate_prompt_tokens", "give the token ids that are to stay: "
            "llm.tokenizer encodes, ids[-n:] are the last n"),
    differs("n", "the number of answers is an argument of generate and chat: n=...", 1),
    not_there_yet("best_of", "answers are not ranked; n=... of generate returns all", 1),
    not_there_yet("use_beam_search", _BEAMS, False),
    not_there_yet("beam_width", _BEAMS, 1),
    without_effect("length_penalty", _BEAMS),
    without_effect("early_stopping", _BEAMS),
    renamed("guided_decoding", "here it is structured_outputs: "
            "StructuredOutputsParams(json=..., regex=..., choice=..., grammar=...)"),
    differs("logits_processors", "a request brings no code into the engine; there are logit_bias, "
            "allowed_token_ids and bad_words_token_ids", []),
    differs("detokenize", "results have text and token_ids", True),
    not_there_yet("skip_special_tokens", "special tokens cannot be kept in texts of LLM; token_ids "
                  "has them", True),
    without_effect("spaces_between_special_tokens", "text is joined as the tokenizer does"),
    not_there_yet("include_stop_str_in_output", "the stop string cannot be kept in the text; it is "
                  "the result's stop_reason", False),
    without_effect("output_kind", _STREAM),
    without_effect("stream_interval", _STREAM),
    not_there_yet("logprob_token_ids", _CHOSEN, []),
    not_there_yet("prompt_logprob_token_ids", _CHOSEN, []),
    not_there_yet("prompt_logprob_start", "prompt_logprobs cannot begin later; they are of the "
                  "whole prompt", 0),
    not_there_yet("flat_logprobs", "log probabilities are not returned as flat lists; each token "
                  "has an object", False),
    not_there_yet("repetition_detection", "repeated text does not end a request; "
                  "repetition_penalty and frequency_penalty make it rarer"),
    differs("skip_reading_prefix_cache", "a prefix is computed again with another cache_salt of "
            "generate", False),
    differs("extra_args", "a request brings nothing that the engine does not know", {}),
    not_there_yet("trace_decode_token_ids", "the tokens of an answer cannot be prescribed; they "
                  "are sampled"),
    not_there_yet("routed_experts_prompt_start", "which experts computed a token is not returned",
                  0),
    without_effect("skip_clone", "parameters cannot be changed, so none is copied"),
    without_effect("output_text_buffer_length", "text waits exactly as long as a stop string may "
                   "begin in it"),
)  # fmt: skip

_FORM = "here it is structured_outputs={%s}"
_OF_CHAT = "it is an argument of chat: chat(messages, params, %s)"

FIELDS_OF_REQUESTS = {
    "response_format": _FORM % '"json": SCHEMA' + ', or {"json_object": True} for any object',
    "json_schema": _FORM % '"json": SCHEMA',
    "guided_json": _FORM % '"json": SCHEMA',
    "guided_regex": _FORM % '"regex": EXPRESSION',
    "guided_choice": _FORM % '"choice": [TEXT, ...]',
    "guided_grammar": _FORM % '"grammar": TEXT',
    "regex": _FORM % '"regex": EXPRESSION',
    "structural_tag": _FORM % '"structural_tag": ...',
    "reasoning_effort": _OF_CHAT % 'reasoning_effort="low"'
    + "; thinking_token_budget bounds reasoning here",
    "chat_template_kwargs": _OF_CHAT % "chat_template_kwargs={...}",
    "tools": _OF_CHAT % "tools=[...]",
    "tool_choice": _OF_CHAT % "tool_choice=...",
    "parallel_tool_calls": _OF_CHAT % "parallel_tool_calls=False",
    "max_completion_tokens": "here it is max_tokens",
    "max_new_tokens": "here it is max_tokens",
    "top_logprobs": "here it is logprobs",
    "timeout_s": "it is an argument of generate, chat and stream: timeout_s=...",
    "cache_salt": "it is an argument of generate, chat and stream: cache_salt=...",
    "priority": "it is an argument of generate, chat and stream: priority=...",
}
"""Fields of a request's body, or of another library, that callers write into SamplingParams: what
to write in their place."""
