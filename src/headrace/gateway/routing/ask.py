"""What of a request the choice of a target hangs on."""

from __future__ import annotations

from typing import NamedTuple

from headrace.gateway.routing.preferences import Wanted, read_wanted
from headrace.protocol.json_object import JsonObject
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.part import Media


class Ask(NamedTuple):
    """input_tokens: an estimate, most_output_tokens: what the client allows, None if it does not
    say. regions: where it may be served, None anywhere. session, prefix: what keeps it with one
    target, None for nothing. no_retention: whether nobody may keep the data; keeps_no_data: whether
    nobody may learn from it."""

    wanted: Wanted
    input_tokens: int
    most_output_tokens: int | None = None
    session: str | None = None
    prefix: int | None = None
    regions: tuple[str, ...] | None = None
    no_retention: bool = False
    keeps_no_data: bool = False


# Providers keep beginnings of 1,024 tokens and more.
_PREFIX_BYTES = 4096

_ROUTING_FIELDS = ("provider", "models", "route")
_MOST_TOKENS_FIELDS = ("max_completion_tokens", "max_tokens", "max_output_tokens")

# Tokens have three to four bytes of English and fewer of anything else; what is too high holds back
# too much of a budget, what is too low lets it be overspent by the difference.
_BYTES_PER_TOKEN = 3
_TOKENS_PER_IMAGE = 1_600
_TOKENS_PER_DOCUMENT = 3_000


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
                tokens += _TOKENS_PER_IMAGE if part.kind == "image" else _TOKENS_PER_DOCUMENT
                continue
            size += len(getattr(part, "text", "")) + len(getattr(part, "arguments", ""))
            content = getattr(part, "content", ())
            size += sum(len(getattr(one, "text", "")) for one in content)
    for tool in call.tools:
        size += len(repr(tool))
    return tokens + size // _BYTES_PER_TOKEN


def estimated_from_bytes(body: bytes) -> int:
    """The same of a body that is passed on unread, without what is base64 in it."""
    size = len(body)
    at = body.find(b";base64,")
    images = 0
    while at >= 0:
        end = body.find(b'"', at)
        end = len(body) if end < 0 else end
        size -= end - at
        images += 1
        at = body.find(b";base64,", end)
    return 8 + size // _BYTES_PER_TOKEN + images * _TOKENS_PER_IMAGE


def ask_of(body: JsonObject, model: str) -> Ask:
    """What of a body the choice of a target hangs on, but for who asks. Raises RequestError."""
    fields = {name: body.decoded(name) for name in _ROUTING_FIELDS if name in body}
    most: int | None = None
    for name in _MOST_TOKENS_FIELDS:
        value = body.decoded(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            most = value
            break
    return Ask(
        wanted=read_wanted(model, fields),
        input_tokens=estimated_from_bytes(body.body),
        most_output_tokens=most,
        prefix=_prefix(body),
    )


def _prefix(body: JsonObject) -> int | None:
    """The same for conversations that begin alike; None for those that are too short to."""
    raw = body.value("messages") or b""
    return hash(raw[:_PREFIX_BYTES]) if len(raw) >= _PREFIX_BYTES else None
