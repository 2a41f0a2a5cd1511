"""An estimate of a prompt's tokens, from the bytes of its body, without decoding it."""

from __future__ import annotations

import re
from functools import cache

from headrace.gateway.routing.media_places import media_places
from headrace.protocol.body_bounds import MAX_CONTAINERS
from headrace.protocol.json_object import JsonObject

BYTES_PER_TOKEN = 3
"""English has three to four bytes per token, other text fewer; a Chinese character has three. Too
high an estimate holds too much of a budget, too low a one lets it be overspent by the
difference."""

TOKENS_PER_IMAGE = 1_600
TOKENS_PER_DOCUMENT = 3_000

# Providers scale pictures down and bill audio by the second, some 10 tokens for 10 kB and more.
# Anything else sent in a field for media is not estimated below this rate either.
_MEDIA_BYTES_PER_TOKEN = 500
# A page of a document is 50 to 300 kB, or some 2,000 tokens.
_DOCUMENT_BYTES_PER_TOKEN = 100
_PDF = b"JVBER"

# A field holds at most some hundred; what follows these counts as text.
_MOST_MEDIA = 4096
# Shorter strings are not media.
_LEAST_MEDIA_BYTES = 64
# Shorter lines are words.
_LEAST_LINE_BYTES = 60
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=-_"

# In JSON the quote of a name is bare; within a text it is escaped, so no text looks like media.
_MAY_HAVE_MEDIA = re.compile(rb'"(?:data|image|input_|file|document|audio_|video_)')
# Quotes and commas: a body with more is searched less closely, and the estimate errs higher. Long
# conversations have some 10,000.
_MOST_MARKS = 2**19
# In a body with more, each escape counts as three bytes.
_MOST_ESCAPES = 2**18
# A list in these fields has a token for each number, however short.
_MAY_BE_TOKENS = frozenset(("input", "prompt"))
_PICTURES = ("image", "image_url", "input_image")
_OTHERS = (
    "document", "document_url", "file", "input_file", "input_audio", "audio_url", "video_url",
)  # fmt: skip
# JSON writers do not escape ASCII letters, but readers accept it.
_ESCAPED_LETTER = re.compile(rb"\\u00(?:[67]|5[fF])")
# A text document counts as text.
_MEDIA = re.compile(
    rb'"(?:url|image_url|file_data|document_url|data)"\s*+:\s*+"'
    rb'data:(?!text)[^",]{0,100};base64,'
    rb'|"(?:file_data|(?P<data>data)|(?P<images>images))"\s*+:\s*+(?:\[\s*+)?+"(?=[^"]{64})'
)
_NEXT = re.compile(rb'"\s*+,\s*+(?P<images>")')
# Anthropic's and OpenAI's objects of bare base64 say so in a field before or after it.
_SAYS_BASE64 = re.compile(rb'"type"\s*+:\s*+"base64"|"format"\s*+:')
_BESIDE_BYTES = 200

# Two bytes in UTF-8, as is either half of a surrogate pair; the others count as three.
_ESCAPES_OF_TWO = re.compile(rb"\\u(?:0[0-7]|[dD][89a-fA-F])")


def utf8_bytes(text: str) -> int:
    """Its length in UTF-8; half a surrogate pair, which some providers send, has three bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def estimate(body: JsonObject) -> int:
    """The estimated tokens, rather too high than too low, in time linear in the body's size.

    An escaped character counts as in UTF-8. A picture counts as a large one, also if only its
    address is given. Base64 in a field for media is not text: it counts by size only where that is
    more. Any other base64 counts as text, as does everything of tools. Each id in a list of token
    ids counts as one.
    """
    raw = body.body
    size, names_are_plain = len(raw), True
    if b"\\u" in raw:
        names_are_plain = b"\\u00" not in raw or _ESCAPED_LETTER.search(raw) is None
        # After an escaped backslash there is no escape, and its length is unknown.
        no_escapes = raw.count(b"\\\\u")
        escapes = raw.count(b"\\u") - no_escapes
        size -= 3 * escapes
        if not no_escapes and escapes <= _MOST_ESCAPES:
            size -= len(_ESCAPES_OF_TWO.findall(raw))
    media_tokens = 0
    if len(raw) > _MOST_MARKS and raw.count(b'"') + raw.count(b",") > _MOST_MARKS:
        media_tokens = _most_of_blocks(raw, names_are_plain=names_are_plain)
    elif not names_are_plain or _MAY_HAVE_MEDIA.search(raw) is not None:
        media_bytes, media_tokens = _of_media(body, names_are_plain=names_are_plain)
        size -= media_bytes
    ids = sum(_more_ids(body, name) for name in body.present(_MAY_BE_TOKENS))
    return 8 + max(size, 0) // BYTES_PER_TOKEN + media_tokens + ids


def _more_ids(body: JsonObject, name: str) -> int:
    """For a list, how many numbers it may have beyond the tokens of as many bytes of text."""
    if body.beginning(name, 1) != b"[":
        return 0
    value = body.value(name) or b""
    return max(0, value.count(b",") + 1 - len(value) // BYTES_PER_TOKEN)


@cache
def _blocks(*, plain: bool) -> re.Pattern[bytes]:
    """The pattern of a part's type; its group matches pictures. `plain`: without escapes."""
    name, *types = (word if plain else _spelt(word) for word in ("type", *_PICTURES, *_OTHERS))
    pictures, others = "|".join(types[: len(_PICTURES)]), "|".join(types[len(_PICTURES) :])
    return re.compile(rf'"{name}"\s*+:\s*+"(?:({pictures})|{others})"'.encode())


def _spelt(word: str) -> str:
    """A pattern of the word with any of its letters escaped."""
    return "".join(rf"(?:{letter}|\\u00(?i:{ord(letter):x}))" for letter in word)


def _of_media(body: JsonObject, *, names_are_plain: bool) -> tuple[int, int]:
    """The bytes that are not text, and the tokens of all media."""
    places = media_places(body, _has_media, names_are_plain=names_are_plain)
    sizes = [_base64(place) for place in places]
    by_size = sum(tokens for _, tokens in sizes)
    # A block contains its media, or only their address.
    blocks = _of_blocks(body.body, names_are_plain=names_are_plain)
    return sum(size for size, _ in sizes), max(by_size, blocks)


def _of_blocks(raw: bytes, *, names_are_plain: bool) -> int:
    """The tokens of parts whose type is a medium."""
    kinds = _blocks(plain=names_are_plain).findall(raw)
    others = kinds.count(b"")
    return (len(kinds) - others) * TOKENS_PER_IMAGE + others * TOKENS_PER_DOCUMENT


def _most_of_blocks(raw: bytes, *, names_are_plain: bool) -> int:
    """An upper bound for a body that takes long to search: if names may be escaped, any object may
    be such a part."""
    if names_are_plain:
        return _of_blocks(raw, names_are_plain=True)
    return min(raw.count(b"{"), MAX_CONTAINERS) * TOKENS_PER_DOCUMENT


def _has_media(field: bytes) -> bool:
    return _MEDIA.search(field) is not None


def _base64(place: bytes) -> tuple[int, int]:
    """The bytes of media in base64, and their tokens by size."""
    media_bytes = tokens = 0
    found = _MEDIA.search(place)
    for _ in range(_MOST_MEDIA):
        if found is None:
            break
        begin = found.end()
        end = _end(place, begin)
        size = _base64_bytes(place, begin, end)
        if size and (found.lastgroup != "data" or _says_base64(place, found.start(), end)):
            media_bytes += size
            tokens += _tokens(place, begin, size)
        is_list = size and found.lastgroup == "images"
        found = (is_list and _NEXT.match(place, end)) or _MEDIA.search(place, end)
    return media_bytes, tokens


def _end(body: bytes, begin: int) -> int:
    end = body.find(b'"', begin)
    return len(body) if end < 0 else end


def _says_base64(body: bytes, name_at: int, end: int) -> bool:
    before = _SAYS_BASE64.search(body, max(0, name_at - _BESIDE_BYTES), name_at)
    return bool(before or _SAYS_BASE64.search(body, end, end + _BESIDE_BYTES))


def _base64_bytes(body: bytes, begin: int, end: int) -> int:
    """The length of a string that is pure base64, 0 for any other."""
    if end - begin < _LEAST_MEDIA_BYTES:
        return 0
    rest = body[begin:end].translate(None, _BASE64)
    if rest:
        # Some JSON writers escape slashes, and some base64 writers break lines.
        slashes = body.count(b"\\/", begin, end)
        breaks = body.count(b"\\n", begin, end)
        is_broken = breaks * _LEAST_LINE_BYTES > end - begin + _LEAST_LINE_BYTES
        if is_broken or rest != b"\\" * (slashes + breaks):
            return 0
    return end - begin


def _tokens(body: bytes, begin: int, size: int) -> int:
    if body.startswith(_PDF, begin):
        return max(TOKENS_PER_DOCUMENT, size // _DOCUMENT_BYTES_PER_TOKEN)
    return max(TOKENS_PER_IMAGE, size // _MEDIA_BYTES_PER_TOKEN)
