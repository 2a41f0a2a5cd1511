"""`--speculative-config`: which sources of drafts an engine has, in vLLM's spelling.

auto                                       every source that costs nothing: ngram and suffix
none                                       no drafts but those that a grammar forces
{"method": "ngram", "num_speculative_tokens": 8, "prompt_lookup_max": 6}
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.engine.drafts.past_answers import PastAnswers
from headrace.engine.drafts.prompt_lookup import PromptLookup
from headrace.engine.drafts.source import DraftSource
from headrace.engine.drafts.speculation import Speculation
from headrace.errors import ConfigError

MOST_DRAFTS = 16
"""Of a row, where the setting names no number: products of up to 17 rows cost little more than one
where weights come from memory, and less pays beyond that."""

_FLAG = "--speculative-config"
Tokens = Annotated[int, Meta(ge=1, le=64)]
Match = Annotated[int, Meta(ge=1, le=64)]


class SpeculativeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sources, as vLLM spells them."""

    method: Literal["auto", "ngram", "suffix", "none"] = "auto"
    num_speculative_tokens: Tokens = MOST_DRAFTS
    """Drafts of a request in a step, at most."""
    prompt_lookup_min: Match | None = None
    prompt_lookup_max: Match | None = None
    """Of ngram: last tokens that have to have come before, the most being sought first; 2 and 6
    where the other allows it."""
    suffix_decoding_max_cached_tokens: Annotated[int, Meta(ge=0, le=1 << 20)] = 1 << 17
    """Of suffix: tokens of past answers that are kept."""
    adaptive: bool = True
    """Take as many drafts as pay, if any do; false: as many as there are."""


def read_speculative_config(text: str) -> SpeculativeConfig:
    """The settings of a flag's value. Raises ConfigError naming the field, value and limit."""
    stripped = text.strip()
    if stripped in ("auto", "none"):
        return SpeculativeConfig(method="auto" if stripped == "auto" else "none")
    try:
        config = msgspec.json.decode(stripped, type=SpeculativeConfig)
    except msgspec.DecodeError as error:
        fields = ", ".join(SpeculativeConfig.__struct_fields__)
        raise ConfigError(
            f"{_FLAG} is {text!r}: {error}; give auto, none or a JSON object of {fields}"
        ) from error
    if (config.prompt_lookup_min or 1) > (config.prompt_lookup_max or 64):
        raise ConfigError(
            f"{_FLAG}: prompt_lookup_min is {config.prompt_lookup_min}, more than "
            f"prompt_lookup_max {config.prompt_lookup_max}; give at most that"
        )
    return config


def speculation_of(config: SpeculativeConfig, *, shares: bool = True) -> Speculation | None:
    """The speculation of an engine; None without any.

    shares: whether requests may show each other what they have in common, as a shared prefix does;
    where they may not, auto has no past answers.
    """
    sources: list[DraftSource] = []
    if config.method in ("auto", "ngram", "suffix"):  # of a request's own text too, as in vLLM
        most = config.prompt_lookup_max or max(6, config.prompt_lookup_min or 0)
        least = config.prompt_lookup_min or min(2, most)
        sources.append(PromptLookup(least, most))
    of_others = config.method == "suffix" or (config.method == "auto" and shares)
    if of_others and config.suffix_decoding_max_cached_tokens:
        sources.append(PastAnswers(config.suffix_decoding_max_cached_tokens))
    if not sources:
        return None
    return Speculation(sources, most_drafts=config.num_speculative_tokens, adaptive=config.adaptive)
