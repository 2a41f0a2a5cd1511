"""What callers of vLLM's LLM write at a call, at the object and at its results.

Names that exist here by the same name and meaning are not in these tables.
"""

from __future__ import annotations

from headrace.config.vllm.setting import differs, not_there_yet, renamed, table

_GENERATES = "there are no embeddings and no scores; models generate text"
_NO_CODE = "code is never handed to the engine"
_PROFILE = "steps are not profiled; `headrace bench engine` measures prefill and decode"
_SLEEP = "an engine cannot release its memory; it keeps it until it ends"

CALL_ARGS = table(
    renamed("sampling_params", "here it is params"),
    renamed("use_tqdm", "here it is progress"),
    renamed("prompt_token_ids", "lists of token ids are prompts: generate([[1, 2, 3]])"),
    differs("chat_template", "the template is the one in the model's files"),
    not_there_yet("lora_request", "adapters (LoRA) are not loaded"),
)  # fmt: skip
"""Arguments of `generate` and `chat`."""

LLM_NAMES = table(
    renamed("from_engine_args", "LLM(MODEL, ...) loads at once, and AsyncLLM is made by `await "
            "AsyncLLM.start(MODEL, ...)`"),
    renamed("get_tokenizer", "here it is the property tokenizer"),
    renamed("get_default_sampling_params", "here it is the property sampling_defaults"),
    renamed("get_metrics", "here it is the property stats"),
    renamed("llm_engine", "the properties info and stats describe the engine"),
    renamed("preprocess_chat", "here it is encode_chat"),
    not_there_yet("beam_search", "there is no beam search; answers are sampled"),
    not_there_yet("encode", _GENERATES),
    not_there_yet("embed", _GENERATES),
    not_there_yet("classify", _GENERATES),
    not_there_yet("score", _GENERATES),
    not_there_yet("reward", _GENERATES),
    not_there_yet("reset_prefix_cache", "the cache cannot be emptied; with another cache_salt a "
                  "prefix is computed again"),
    not_there_yet("sleep", _SLEEP),
    not_there_yet("wake_up", _SLEEP),
    not_there_yet("start_profile", _PROFILE),
    not_there_yet("stop_profile", _PROFILE),
    differs("collective_rpc", _NO_CODE),
    differs("apply_model", _NO_CODE),
)  # fmt: skip
"""Attributes of `LLM` and `AsyncLLM`."""

RESULT_NAMES = table(
    renamed("outputs", "a result is itself the answer (result.text, result.token_ids); all n "
            "answers are result.choices"),
    renamed("num_cached_tokens", "here it is cached_tokens"),
    renamed("finished", "finish_reason says how it ended"),
    renamed("prompt", "prompt_token_ids are the prompt as the model reads it"),
)  # fmt: skip
"""Attributes of a result or a delta."""
