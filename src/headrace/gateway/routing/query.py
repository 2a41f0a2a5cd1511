"""What of a request the choice of a target hangs on."""

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
    """input_tokens: an estimate, rather too many; least: what it has for sure, None if nobody can
    tell. most_output_tokens: what the client allows for each of so many `choices`, of all prompts
    together, None if it does not say. regions: where it may be served, None anywhere. session,
    prefix: what keeps it with one target, None for nothing. no_retention: whether nobody may keep
    the data; keeps_no_data: whether nobody may learn from it. who: what gives it to a side of an
    A/B test; sides: which, once that is decided: model and side. blocks: hashes of the prompt's
    beginning, for models that go by it. no_free: why nobody may be asked who is free of charge, and
    for how many seconds; None where they may. hears_names: whether it may be told what models there
    are, of which its key may not ask all. continued: the stored response that it goes on from,
    whose tokens input_tokens has where they are known; None for none."""

    wanted: Wanted
    input_tokens: int
    most_output_tokens: int | None = None
    choices: int = 1
    session: str | None = None
    prefix: int | None = None
    regions: tuple[str, ...] | None = None
    no_retention: bool = False
    keeps_no_data: bool = False
    priority: int = 0
    who: Who = NOBODY
    sides: tuple[tuple[str, str], ...] = ()
    blocks: tuple[int, ...] = ()
    least: LeastTokens | None = None
    no_free: tuple[str, float | None] | None = None
    hears_names: bool = True
    continued: ToldResponse | None = None

    @property
    def least_tokens(self) -> int:
        """What its prompt takes of a context at least."""
        return 0 if self.least is None else self.least.count


# Providers keep beginnings of 1,024 tokens and more.
_PREFIX_BYTES = 4096

_CACHE_KEY = "prompt_cache_key"

_ROUTING_FIELDS = frozenset(("provider", "models", "route"))
_MOST_TOKENS_FIELDS = frozenset(("max_completion_tokens", "max_tokens", "max_output_tokens"))
# Ollama has what it is to write among its options.
_OPTIONS, _OPTIONS_MOST = "options", "num_predict"
_PROMPT = "prompt"
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
# Those of `best_of` that are not told are billed like the others.
_CHOICES_FIELDS = frozenset(("n", "best_of"))


def estimated_tokens(call: ChatCall) -> int:
    """About how many tokens the prompt has, rather too many than too few.

    Pictures count as about what a large one takes, whatever their bytes; real tokenizers are the
    providers' and not at hand.
    """
    size = sum(utf8_bytes(one.text) for one in call.instructions)
    size += sum(utf8_bytes(repr(tool)) for tool in call.tools)
    parts = [part for message in call.messages for part in message.parts]
    parts += [one for part in parts if isinstance(part, ToolResult) for one in part.content]
    tokens = 8 + 4 * len(call.messages)
    for part in parts:
        if isinstance(part, Media):
            tokens += TOKENS_PER_IMAGE if part.kind == "image" else TOKENS_PER_DOCUMENT
            continue
        size += utf8_bytes(getattr(part, "text", "")) + utf8_bytes(getattr(part, "arguments", ""))
    return tokens + size // BYTES_PER_TOKEN


def query_from_body(body: JsonObject, model: str, *, by_prefix: bool = True) -> RoutingQuery:
    """What of a body the choice of a target hangs on, but for who asks. by_prefix: whether any
    model goes by how prompts begin. Raises RequestError."""
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
    """The largest that is said: which of them a provider obeys, only the provider knows."""
    most = _most(body, _MOST_TOKENS_FIELDS, 0)
    if _OPTIONS in body:
        options = body.decoded(_OPTIONS)
        if isinstance(options, dict):
            most = max(most, _positive(options.get(_OPTIONS_MOST)) or 0)
    return most or None


def _most(body: JsonObject, names: frozenset[str], least: int) -> int:
    found = [_positive(body.decoded(name)) or least for name in body.present(names)]
    return max(found, default=least)


def _prompts(body: JsonObject) -> int:
    """How many are completed; a list of numbers is one, in tokens."""
    if _PROMPT not in body or not has_several(body.beginning(_PROMPT, _PREFIX_BYTES)):
        return 1
    try:
        return len(_LIST.decode(body.value(_PROMPT) or b"[]")) or 1
    except (msgspec.DecodeError, UnicodeDecodeError):
        return 1


def _positive(value: object) -> int | None:
    """At most MOST_TOKENS. Lenient providers obey digits in a string, and floats without their
    fraction, so what they may be understood as counts."""
    if isinstance(value, str):
        value = _number(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 1:
        return None
    return int(min(value, MOST_TOKENS))


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def _prefix(body: JsonObject) -> int | None:
    """The same for prompts that begin alike, or that OpenAI's clients say do; None for those that
    are too short to. The same in every process, which Python's own hash is not."""
    if _CACHE_KEY in body:
        return zlib.crc32(body.beginning(_CACHE_KEY, _PREFIX_BYTES))
    found, left = 0, _PREFIX_BYTES
    for name in PROMPT_FIELDS:
        piece = body.beginning(name, left)
        found = zlib.crc32(piece, found)
        left -= len(piece)
        if left == 0:
            return found
    return None
