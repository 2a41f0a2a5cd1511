"""What of a request the choice of a target hangs on."""

from __future__ import annotations

import re
import zlib
from typing import NamedTuple

import msgspec

from headrace.gateway.routing.estimate import (
    BYTES_PER_TOKEN,
    TOKENS_PER_DOCUMENT,
    TOKENS_PER_IMAGE,
    estimate,
    least_tokens,
)
from headrace.gateway.routing.preferences import Wanted, read_wanted
from headrace.gateway.routing.variants import NOBODY, Who
from headrace.protocol.json_object import JsonObject
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.part import Media


class Ask(NamedTuple):
    """input_tokens: an estimate, rather too many; media_tokens: those of it that are no text.
    most_output_tokens: what the client allows for each of so many `choices`, of all prompts
    together, None if it does not say. regions: where it may be served, None anywhere. session,
    prefix: what keeps it with one target, None for nothing. no_retention: whether nobody may keep
    the data; keeps_no_data: whether nobody may learn from it. who: what gives it to a side of an
    A/B test; sides: which, once that is decided: model and side. blocks: hashes of the prompt's
    beginning, for models that go by it."""

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
    media_tokens: int = 0

    @property
    def least_tokens(self) -> int:
        """What it takes of a context at least, with all that it may write."""
        least = least_tokens(self.input_tokens, self.media_tokens)
        return least + (self.most_output_tokens or 0)


# Providers keep beginnings of 1,024 tokens and more.
_PREFIX_BYTES = 4096

# Of every dialect, in the order in which providers lay a prompt out.
_PROMPT_FIELDS = ("tools", "system", "instructions", "messages", "input", "prompt")
_CACHE_KEY = "prompt_cache_key"

_ROUTING_FIELDS = ("provider", "models", "route")
_MOST_TOKENS_FIELDS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
# Ollama has what it is to write among its options.
_OPTIONS, _OPTIONS_MOST = "options", "num_predict"
_PROMPT = "prompt"
_SEVERAL = re.compile(rb'\[\s*+["\[]')
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
# Those of `best_of` that are not told are billed like the others.
_CHOICES_FIELDS = ("n", "best_of")


def estimated_tokens(call: ChatCall) -> int:
    """About how many tokens the prompt has, rather too many than too few.

    Pictures count as about what a large one takes, whatever their bytes; real tokenizers are the
    providers' and not at hand.
    """
    size = sum(len(one.text) for one in call.instructions)
    tokens = 8
    for message in call.messages:
        tokens += 4
        for part in message.parts:
            if isinstance(part, Media):
                tokens += TOKENS_PER_IMAGE if part.kind == "image" else TOKENS_PER_DOCUMENT
                continue
            size += len(getattr(part, "text", "")) + len(getattr(part, "arguments", ""))
            content = getattr(part, "content", ())
            size += sum(len(getattr(one, "text", "")) for one in content)
    for tool in call.tools:
        size += len(repr(tool))
    return tokens + size // BYTES_PER_TOKEN


def estimated_from_bytes(body: bytes) -> int:
    """The same of a body that is passed on unread."""
    return estimate(body).tokens


def ask_of(body: JsonObject, model: str, *, by_prefix: bool = True) -> Ask:
    """What of a body the choice of a target hangs on, but for who asks. by_prefix: whether any
    model goes by how prompts begin. Raises RequestError."""
    fields = {name: body.decoded(name) for name in _ROUTING_FIELDS if name in body}
    estimated = estimate(body.body)
    return Ask(
        wanted=read_wanted(model, fields),
        input_tokens=estimated.tokens,
        most_output_tokens=_most_output_tokens(body),
        choices=max(_count(body, name) or 1 for name in _CHOICES_FIELDS) * _prompts(body),
        prefix=_prefix(body) if by_prefix else None,
        media_tokens=estimated.media_tokens,
    )


def _most_output_tokens(body: JsonObject) -> int | None:
    """The largest that is said: which of them a provider obeys, only the provider knows."""
    most = max(_count(body, name) or 0 for name in _MOST_TOKENS_FIELDS)
    if _OPTIONS in body:
        options = body.decoded(_OPTIONS)
        if isinstance(options, dict):
            most = max(most, _positive(options.get(_OPTIONS_MOST)) or 0)
    return most or None


def _prompts(body: JsonObject) -> int:
    """How many are completed; a list of numbers is one, in tokens."""
    if not _SEVERAL.match(body.beginning(_PROMPT, _PREFIX_BYTES)):
        return 1
    try:
        return len(_LIST.decode(body.value(_PROMPT) or b"[]")) or 1
    except (msgspec.DecodeError, UnicodeDecodeError):
        return 1


def _count(body: JsonObject, name: str) -> int | None:
    return _positive(body.decoded(name)) if name in body else None


def _positive(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if value > 0 else None


def _prefix(body: JsonObject) -> int | None:
    """The same for prompts that begin alike, or that OpenAI's clients say do; None for those that
    are too short to. The same in every process, which Python's own hash is not."""
    if _CACHE_KEY in body:
        return zlib.crc32(body.beginning(_CACHE_KEY, _PREFIX_BYTES))
    found, left = 0, _PREFIX_BYTES
    for name in _PROMPT_FIELDS:
        piece = body.beginning(name, left)
        found = zlib.crc32(piece, found)
        left -= len(piece)
        if left == 0:
            return found
    return None
