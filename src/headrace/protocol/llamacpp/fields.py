"""The fields of llama-server's own endpoints that are not honoured, with their harmless values."""

from __future__ import annotations

from headrace.protocol.llamacpp.request import (
    CompletionBody,
    InfillBody,
    check_completion_body,
    check_native,
)
from headrace.protocol.request import Endpoint, Known, Nested

_REFUSED: tuple[object, ...] = ()

NATIVE_KNOWN = {
    row.name: row
    for row in (
        Known("cache_prompt", bool, "caching changes no output"),
        Known("id_slot", (-1,), "any; there are no slots"),
        Known("n_keep", (0,), "nothing is shifted out of the context"),
        Known("n_discard", (0,), "nothing is shifted out of the context"),
        Known("n_cache_reuse", (0,), "off"),
        Known("n_indent", (0,), "off"),
        Known("min_keep", (0,), "off"),
        Known("t_max_prompt_ms", (-1,), "no limit"),
        Known("presence_penalty", (0,), "none; /v1/completions has OpenAI's, of the output alone"),
        Known("frequency_penalty", (0,), "none; /v1/completions has OpenAI's, of the output alone"),
        Known("typical_p", (1,), "keeps all", "`min_p` or `top_p`"),
        Known("top_n_sigma", (-1,), "off", "`min_p`"),
        Known("xtc_probability", (0,), "off"),
        Known("xtc_threshold", (0.1,), "xtc is off"),
        Known("dynatemp_range", (0,), "off"),
        Known("dynatemp_exponent", (1,), "dynatemp is off"),
        Known("dry_multiplier", (0,), "off"),
        Known("dry_base", (1.75,), "dry is off"),
        Known("dry_allowed_length", (2,), "dry is off"),
        Known("dry_penalty_last_n", (-1, 64), "dry is off"),
        Known("dry_sequence_breakers", list, "dry is off"),
        Known("mirostat", (0,), "off", "`temperature`"),
        Known("mirostat_tau", (5,), "mirostat is off"),
        Known("mirostat_eta", (0.1,), "mirostat is off"),
        Known("post_sampling_probs", (False,), "log probabilities are the model's own"),
        Known("lora", ([],), "none"),
        Known("grammar_lazy", (False,), "a grammar holds from the first token"),
        Known("preserved_tokens", ([],), "none"),
        Known("verbose", (False,), "replies have no more"),
        Known("sse_ping_interval", _REFUSED, ""),
        Known("image_data", ([],), "there are no images"),
    )
}

_EXTRA = Nested(frozenset({"text", "filename"}))

COMPLETION = Endpoint("/completion", CompletionBody, NATIVE_KNOWN, {}, check_completion_body)
INFILL = Endpoint("/infill", InfillBody, NATIVE_KNOWN, {"input_extra": _EXTRA}, check_native)
NATIVE_ENDPOINTS = (COMPLETION, INFILL)
