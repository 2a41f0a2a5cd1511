"""The part of a request that routing looks at."""

from __future__ import annotations

import math
import zlib
from typing import NamedTuple

import msgspec

from headrace.gateway.routing.estimate import (
    BYTES_PER_TOKEN,
    TOKENS_PER_DOCUMENT,
    TOKENS_PER_IMAGE,
    estimate,
    utf8_bytes,
)
from headrace.gateway.routing.least_tokens import PROMPT_FIELDS, LeastTokens, has_several
from headrace.gateway.routing.preferences import Wanted, read_wanted
from headrace.gateway.routing.told_responses import ToldResponse
from headrace.gateway.routing.variants import NOBODY, Who
from headrace.protocol.dialects.token_count import MOST_TOKENS
from headrace.protocol.json_object import JsonObject
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.part import Media, ToolResult


class RoutingQuery(NamedTuple):
    """A routing query: the part of a request that routing looks at, and the key's policy."""

    wanted: Wanted
    input_tokens: int
    """An estimate, rather too high; includes the stored response it continues, where known."""
    most_output_tokens: int | None = None
    """The client's limit for one choice; None without one."""
    choices: int = 1
    """Choices to make, over all prompts."""
    session: str | None = None
    """Keeps it with one target; None for no session."""
    prefix: int | None = None
    """Keeps prompts that begin alike with one target; None for none."""
    regions: tuple[str, ...] | None = None
    """Regions where it may be served; None for any."""
    no_retention: bool = False
    """Whether providers may not keep the data."""
    keeps_no_data: bool = False
    """Whether providers may not learn from the data."""
    priority: int = 0
    who: Who = NOBODY
    """The subject by which it is assigned to an A/B variant."""
    sides: tuple[tuple[str, str], ...] = ()
    """Model and variant, once that is decided."""
    blocks: tuple[int, ...] = ()
    """Hashes of the prompt's beginning, for models whose routing uses them."""
    least: LeastTokens | None = None
    """The tokens it has for certain; None if unknown."""
    no_free: tuple[str, float | None] | None = None
    """Why no free target may be used, and for how many seconds; None if free ones may."""
    hears_names: bool = True
    """Whether errors may list model names, some of which its key may not use."""
    continued: ToldResponse | None = None
    """The stored response that it continues; None for none."""

    @property
    def least_tokens(self) -> int:
        """The least its prompt takes of a context."""
        return 0 if self.least is None else self.least.count


# Providers cache beginnings of 1,024 tokens or more.
_PREFIX_BYTES = 4096

_CACHE_KEY = "prompt_cache_key"

_ROUTING_FIELDS = frozenset(("provider", "models", "route"))
_MOST_TOKENS_FIELDS = frozenset(("max_completion_tokens", "max_tokens", "max_output_tokens"))
# Ollama has the limit on output among its options.
_OPTIONS, _OPTIONS_MOST = "options", "num_predict"
_PROMPT = "prompt"
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
# The choices of `best_of` that are not returned are billed like the others.
_CHOICES_FIELDS = frozenset(("n", "best_of"))


def estimated_tokens(call: ChatCall) -> int:
    """An estimate of the prompt's tokens, rather too high than too low.

    Pictures count as a large one, whatever their bytes: the providers' tokenizers are not available
    here.
    """
    size = sum(utf8_bytes(instruction.text) for instruction in call.instructions)
    size += sum(utf8_bytes(repr(tool)) for tool in call.tools)
    parts = [part for message in call.messages for part in message.parts]
    parts += [inner for part in parts if isinstance(part, ToolResult) for inner in part.content]
    tokens = 8 + 4 * len(call.messages)
    for part in parts:
        if isinstance(part, Media):
            tokens += TOKENS_PER_IMAGE if part.kind == "image" else TOKENS_PER_DOCUMENT
            continue
        size += utf8_bytes(getattr(part, "text", "")) + utf8_bytes(getattr(part, "arguments", ""))
    return tokens + size // BYTES_PER_TOKEN


def query_from_body(body: JsonObject, model: str, *, by_prefix: bool = True) -> RoutingQuery:
    """The routing query of a body, without the caller's part. `by_prefix` says whether any model is
    routed by how prompts begin. Raises RequestError."""
    fields = {name: body.decoded(name) for name in body.present(_ROUTING_FIELDS)}
    return RoutingQuery(
        wanted=read_wanted(model, fields),
        input_tokens=estimate(body),
        most_output_tokens=_most_output_tokens(body),
        choices=_most(body, _CHOICES_FIELDS, 1) * _prompts(body),
        prefix=_prefix(body) if by_prefix else None,
        least=LeastTokens(body),
    )


def _most_output_tokens(body: JsonObject) -> int | None:
    """The largest limit in the body: which one a provider obeys, only the provider knows."""
    most = _most(body, _MOST_TOKENS_FIELDS, 0)
    if _OPTIONS in body:
        options = body.decoded(_OPTIONS)
        if isinstance(options, dict):
            most = max(most, _positive(options.get(_OPTIONS_MOST)) or 0)
    return most or None


def _most(body: JsonObject, names: frozenset[str], least: int) -> int:
    values = [_positive(body.decoded(name)) or least for name in body.present(names)]
    return max(values, default=least)


def _prompts(body: JsonObject) -> int:
    """How many prompts are completed; a list of numbers is one, in tokens."""
    if _PROMPT not in body or not has_several(body.beginning(_PROMPT, _PREFIX_BYTES)):
        return 1
    try:
        return len(_LIST.decode(body.value(_PROMPT) or b"[]")) or 1
    except (msgspec.DecodeError, UnicodeDecodeError):
        return 1


def _positive(value: object) -> int | None:
    """A positive number, at most MOST_TOKENS. Lenient providers obey digits in a string and drop
    the fraction of floats, so the number they may read counts."""
    if isinstance(value, str):
        value = _number(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 1:
        return None
    return int(min(value, MOST_TOKENS))


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _prefix(body: JsonObject) -> int | None:
    """A checksum shared by prompts that begin alike, or share OpenAI's cache key; None for short
    prompts. It is the same in every process, which Python's own hash is not."""
    if _CACHE_KEY in body:
        return zlib.crc32(body.beginning(_CACHE_KEY, _PREFIX_BYTES))
    checksum, left = 0, _PREFIX_BYTES
    for name in PROMPT_FIELDS:
        piece = body.beginning(name, left)
        checksum = zlib.crc32(piece, checksum)
        left -= len(piece)
        if left == 0:
            return checksum
    return None
