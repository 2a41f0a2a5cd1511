"""`--speculative-config`: which sources of drafts an engine has, in vLLM's spelling.

auto                                       every source that costs nothing: ngram and suffix
none                                       no drafts but those that a grammar forces
ngram, suffix, mtp                         the same as {"method": NAME}
{"method": "ngram", "num_speculative_tokens": 8, "prompt_lookup_max": 6}
{"method": "draft_model", "model": "PATH", "num_speculative_tokens": 5}
{"method": "eagle3", "model": "PATH"}      a head for this model
{"method": "dflash", "model": "PATH"}      a head for this model that gives a block of drafts
{"method": "medusa", "model": "PATH"}      heads for this model, one for each place
{"method": "mtp"}                          the model's own layers for further tokens
{"method": "mtp", "model": "PATH"}         such layers from a place of their own
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta

from headrace.config.load import nearest
from headrace.engine.drafts.lookup.past_answers import PastAnswers
from headrace.engine.drafts.lookup.prompt_lookup import PromptLookup
from headrace.engine.drafts.passes.draft_chain import DraftChain
from headrace.engine.drafts.source import DraftSource
from headrace.engine.drafts.speculation import Speculation
from headrace.errors import ConfigError, shown

if TYPE_CHECKING:
    from headrace.weights.hugging_face.head_folder import HeadKind

MOST_DRAFTS = 16
"""Of a row, where the setting names no number: products of up to 17 rows cost little more than one
where weights come from memory, and less pays beyond that."""

MOST_OF_MODEL = 5
"""Of a row, of a draft model: each of its drafts is a pass, and a request's chance to reach a later
one falls."""

_FLAG = "--speculative-config"
_MOST_TOKENS = 64
_MOST_KEPT_TOKENS = 1 << 20
_SHOWN = 60
"""Characters of a value that is refused."""
_WITH_MODEL = {
    "draft_model": "a path or a name as of --model, of a smaller model with the same tokenizer",
    "eagle3": "the folder of an EAGLE-3 head that was made for this model",
    "dflash": "the folder of a DFlash head that was made for this model",
    "medusa": "the folder of Medusa heads that were made for this model",
}
"""Methods that need a model: what it is."""
_WITHOUT_MORE = ("auto", "none", "ngram", "suffix", "mtp")
"""Methods that need nothing else: their name alone is a setting."""
_MAY_HAVE_MODEL = ("auto", "mtp", *_WITH_MODEL)
_METHODS = (*_WITHOUT_MORE, *_WITH_MODEL)
Tokens = Annotated[int, Meta(ge=1, le=_MOST_TOKENS)]
Match = Annotated[int, Meta(ge=1, le=_MOST_TOKENS)]
_SWITCH, _FEW = "true or false", f"a whole number from 1 to {_MOST_TOKENS}"
_VALUES = {
    "method": f"one of {', '.join(_METHODS)}",
    "model": "a path or a name, in quotes",
    "mtp": _SWITCH,
    "num_speculative_tokens": _FEW,
    "prompt_lookup_min": _FEW,
    "prompt_lookup_max": _FEW,
    "suffix_decoding_max_cached_tokens": f"a whole number from 0 to {_MOST_KEPT_TOKENS}",
    "adaptive": _SWITCH,
}
"""What each field may be, in errors."""
_READ_BY = {
    "prompt_lookup_min": ("auto", "ngram", "suffix"),
    "prompt_lookup_max": ("auto", "ngram", "suffix"),
    "suffix_decoding_max_cached_tokens": ("auto", "suffix"),
    "num_speculative_tokens": tuple(name for name in _METHODS if name != "none"),
}
"""Methods that read a field; the others are refused with it."""


class SpeculativeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sources, as vLLM spells them."""

    method: (
        Literal[
            "auto", "ngram", "suffix", "draft_model", "eagle3", "dflash", "medusa", "mtp", "none"
        ]
        | None
    ) = None
    """None: what the model is, where there is one, else auto. With a model, auto has all of them.
    """
    model: str | None = None
    """Of draft_model: a smaller model with the same tokenizer, named as --model is. Of eagle3,
    dflash and medusa: a folder with a head for this model. Of mtp: a folder or a GGUF file with
    layers for further tokens, where the model has none of its own."""
    mtp: bool = False
    """With auto: the model's own layers for further tokens, beside what costs nothing."""
    num_speculative_tokens: Tokens | None = None
    """Drafts of a request in a step, at most; None for MOST_DRAFTS, and MOST_OF_MODEL of a model or
    a head, but for one that gives a block of them."""
    prompt_lookup_min: Match | None = None
    prompt_lookup_max: Match | None = None
    """Of ngram: last tokens that have to have come before, the most being sought first; 2 and 6
    where the other allows it."""
    suffix_decoding_max_cached_tokens: Annotated[int, Meta(ge=0, le=_MOST_KEPT_TOKENS)] = 1 << 17
    """Of suffix: tokens of past answers that are kept."""
    adaptive: bool = True
    """Take as many drafts as pay, if any do; false: as many as there are."""

    @property
    def sources(self) -> str:
        """The method, where none is named."""
        return self.method or ("auto" if self.model is None else "draft_model")

    @property
    def most_of_model(self) -> int:
        """Drafts of a row that a model or a head makes, at most."""
        return self.num_speculative_tokens or MOST_OF_MODEL

    @property
    def has_own_mtp(self) -> bool:
        """Whether the model's own layers for further tokens make drafts."""
        return self.mtp or (self.method == "mtp" and self.model is None)


def read_speculative_config(text: str) -> SpeculativeConfig:
    """The settings of a flag's value. Raises ConfigError naming the field, value and limit."""
    stripped = text.strip()
    try:
        given = {"method": stripped} if stripped in _WITHOUT_MORE else _json_object(stripped)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{_FLAG} is {shown(text)}: {error}") from error
    try:
        config = msgspec.convert(given, SpeculativeConfig)
    except msgspec.ValidationError as error:
        # It names the field behind the kind that it expects: "… - at `$.model`".
        name = str(error).rpartition("$.")[2].rstrip("`")
        raise ConfigError(
            f"{_FLAG}: {name} is {json.dumps(given[name])[:_SHOWN]}; give {_VALUES[name]}"
        ) from error
    for name, methods in _READ_BY.items():
        if name in given and config.sources not in methods:
            raise ConfigError(
                f"{_FLAG}: {name} is {given[name]}, and method {config.sources} does not read it; "
                f"omit it, or use {_either(methods)}"
            )
    if (config.prompt_lookup_min or 1) > (config.prompt_lookup_max or 64):
        raise ConfigError(
            f"{_FLAG}: prompt_lookup_min is {config.prompt_lookup_min}, more than "
            f"prompt_lookup_max {config.prompt_lookup_max}; give at most that"
        )
    if config.method in _WITH_MODEL and not config.model:
        raise ConfigError(
            f"{_FLAG}: method is {config.method} without a model; give model, "
            f"{_WITH_MODEL[config.method]}"
        )
    if config.model is not None and not config.model.strip():
        raise ConfigError(f"{_FLAG}: model is {config.model!r}; give a path or a name, or omit it")
    if config.model is not None and config.sources not in _MAY_HAVE_MODEL:
        raise ConfigError(
            f"{_FLAG}: model is {config.model!r}, and method {config.method} has none; omit one of "
            f"them, or use {_either(_MAY_HAVE_MODEL)}"
        )
    if config.mtp and (config.sources not in ("auto", "mtp") or config.model is not None):
        raise ConfigError(
            f"{_FLAG}: mtp is true, which goes with method auto and without a model; omit it, or "
            "the others"
        )
    return config


def head_kind_of(config: SpeculativeConfig, path: Path) -> HeadKind | None:
    """What the head in a folder is, as the folder or else the setting says; None for a model.

    Raises ConfigError where they say different things.
    """
    from headrace.weights.hugging_face.head_folder import HEAD_KINDS, head_kind

    kind = head_kind(path)
    if kind is not None and config.sources not in ("auto", kind) and config.method is not None:
        raise ConfigError(
            f"{_FLAG}: {path} is a head for method {kind}, and method is {config.method}; use "
            f"{kind}, or omit it"
        )
    if kind is None and config.method in HEAD_KINDS:
        return cast("HeadKind", config.method)
    return kind


def _either(names: Sequence[str]) -> str:
    """The names in an alternative: "a, b or c"."""
    *others, last = names
    return f"{', '.join(others)} or {last}"


def _json_object(text: str) -> dict[str, Any]:
    """The object of a text that is not a method's name alone, with known fields and a known method.
    Raises ValueError for any other."""
    methods = ", ".join(_WITHOUT_MORE)
    fields = ", ".join(SpeculativeConfig.__struct_fields__)
    if text in _WITH_MODEL:
        example = f'{{"method": "{text}", "model": ...}}'
        raise ValueError(f"this method needs a model, {_WITH_MODEL[text]}; give {example}")
    try:
        given = msgspec.json.decode(text)
        json.loads(text, object_pairs_hook=_check_once)
    except msgspec.DecodeError as error:
        # What begins like an object or a list was meant as JSON, anything else as a name.
        said = f"{error}" if text[:1] in ("{", "[") else f"unknown method{nearest(text, _METHODS)}"
        raise ValueError(f"{said}; give {methods}, or a JSON object of {fields}") from None
    if not isinstance(given, dict):
        raise ValueError(f"it is not an object; give {methods}, or a JSON object of {fields}")
    for name in given:
        if name not in SpeculativeConfig.__struct_fields__:
            meant = nearest(name, SpeculativeConfig.__struct_fields__)
            raise ValueError(f"unknown field {shown(name)}{meant}; fields are {fields}")
    method = given.get("method")
    if isinstance(method, str) and method not in _METHODS:
        meant = nearest(method.lower(), _METHODS)
        raise ValueError(
            f"unknown method {shown(method)}{meant}; methods are {', '.join(_METHODS)}"
        )
    return given


def _check_once(pairs: list[tuple[str, Any]]) -> None:
    """Raises ValueError where an object has a field twice, of which readers take the last."""
    names = [name for name, _ in pairs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"{shown(twice)} is there twice; give it once")


def speculation_of(
    config: SpeculativeConfig,
    *,
    shares: bool = True,
    model: DraftChain[Any] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Speculation | None:
    """The speculation of an engine; None without any.

    model: the one that the config names, where it names one.

    shares: whether requests may show each other what they have in common, as a shared prefix does;
    where they may not, auto has no past answers.

    clock: as of Speculation.
    """
    sources: list[DraftSource] = []
    if config.sources in ("auto", "ngram", "suffix"):  # of its own text too, as in vLLM
        most = config.prompt_lookup_max or max(6, config.prompt_lookup_min or 0)
        least = config.prompt_lookup_min or min(2, most)
        sources.append(PromptLookup(least, most))
    of_others = config.sources == "suffix" or (config.sources == "auto" and shares)
    if of_others and config.suffix_decoding_max_cached_tokens:
        sources.append(PastAnswers(config.suffix_decoding_max_cached_tokens))
    if not sources and model is None:
        return None
    most_drafts = config.num_speculative_tokens
    most_of_model = config.most_of_model
    if model is not None and model.block_drafts:  # which cost one pass, however many are taken
        most_of_model = min(most_drafts or MOST_DRAFTS, model.block_drafts)
    return Speculation(
        sources,
        most_drafts=most_drafts or MOST_DRAFTS,
        adaptive=config.adaptive,
        model=model,
        most_of_model=most_of_model,
        clock=clock,
    )
