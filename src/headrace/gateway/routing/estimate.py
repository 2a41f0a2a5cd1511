"""About how many tokens a prompt has, from the bytes of its body, which is not decoded for it."""

from __future__ import annotations

import re
from typing import NamedTuple

BYTES_PER_TOKEN = 3
"""Tokens have three to four bytes of English and fewer of anything else; what is too high holds
back too much of a budget, what is too low lets it be overspent by the difference."""

# On average the tokens of no written language are longer: Russian and Hindi come near to it.
_MOST_BYTES_PER_TOKEN = 8

TOKENS_PER_IMAGE = 1_600
TOKENS_PER_DOCUMENT = 3_000

# Providers scale pictures down and bill sounds by the second, some 10 tokens for 10 kB and more.
# Whatever else is sent in a field for media is not held back for less than this either.
_MEDIA_BYTES_PER_TOKEN = 500
# A page of a document is 50 to 300 kB, or some 2,000 tokens.
_DOCUMENT_BYTES_PER_TOKEN = 100
_PDF = b"JVBER"

# Requests have some hundred at most; what comes after these is text.
_MOST_MEDIA = 4096
# No picture or sound is as small.
_LEAST_MEDIA_BYTES = 64
# Shorter lines are of words.
_LEAST_LINE_BYTES = 60
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=-_"

# In JSON a name's quote stands bare; within a text it is escaped, so no text announces media.
_MAY_HAVE_MEDIA = re.compile(rb'"(?:data|image|input_|file|document)')
_BLOCKS = re.compile(
    rb'"type"\s*+:\s*+"(?:(image|image_url|input_image)|document|file|input_file|input_audio)"'
)
# What is text in a document is counted as text.
_MEDIA = re.compile(
    rb'"(?:url|image_url|file_data|document_url|data)"\s*+:\s*+"'
    rb'data:(?!text)[^",]{0,100};base64,'
    rb'|"(?:file_data|(?P<data>data)|(?P<images>images))"\s*+:\s*+(?:\[\s*+)?+"(?=[^"]{64})'
)
_NEXT = re.compile(rb'"\s*+,\s*+(?P<images>")')
# Anthropic's and OpenAI's objects of bare base64 say so beside it, before or after.
_SAYS_BASE64 = re.compile(rb'"type"\s*+:\s*+"base64"|"format"\s*+:')
_BESIDE_BYTES = 200

# Two bytes in UTF-8, as is either half of a surrogate pair; the others are taken for three.
_ESCAPES_OF_TWO = re.compile(rb"\\u(?:0[0-7]|[dD][89a-fA-F])")


class Estimate(NamedTuple):
    """tokens: rather too many than too few. media_tokens: those of them that are pictures, sounds
    and files."""

    tokens: int
    media_tokens: int = 0


def estimate(body: bytes) -> Estimate:
    """Of valid JSON, in time that grows with its size alone.

    An escaped character counts as it is in UTF-8. A picture counts as about what a large one takes,
    by its address as well. Base64 in a field for media is not text: it counts by its size only
    where that is more. Any other counts as text.
    """
    size = len(body)
    if b"\\u" in body:
        # Behind an escaped backslash there is no escape, and no telling of which length.
        no_escapes = body.count(b"\\\\u")
        size -= 3 * (body.count(b"\\u") - no_escapes)
        if not no_escapes:
            size -= len(_ESCAPES_OF_TWO.findall(body))
    media_tokens = 0
    if _MAY_HAVE_MEDIA.search(body) is not None:
        media_bytes, media_tokens = _of_media(body)
        size -= media_bytes
    return Estimate(8 + max(size, 0) // BYTES_PER_TOKEN + media_tokens, media_tokens)


def least_tokens(tokens: int, media_tokens: int) -> int:
    """What a prompt with this estimate has at least; nobody knows the least of its media."""
    text = max(0, tokens - media_tokens)
    return text * BYTES_PER_TOKEN // _MOST_BYTES_PER_TOKEN


def _of_media(body: bytes) -> tuple[int, int]:
    """The bytes that are not text, and the tokens of all media."""
    kinds = _BLOCKS.findall(body)
    others = kinds.count(b"")
    blocks = (len(kinds) - others) * TOKENS_PER_IMAGE + others * TOKENS_PER_DOCUMENT
    media_bytes = by_size = 0
    found = _MEDIA.search(body)
    for _ in range(_MOST_MEDIA):
        if found is None:
            break
        begin = found.end()
        end = _end(body, begin)
        size = _base64_bytes(body, begin, end)
        if size and (found.lastgroup != "data" or _says_base64(body, found.start(), end)):
            media_bytes += size
            by_size += _tokens(body, begin, size)
        is_list = size and found.lastgroup == "images"
        found = (is_list and _NEXT.match(body, end)) or _MEDIA.search(body, end)
    # A block has its media in it, or only their address.
    return media_bytes, max(by_size, blocks)


def _end(body: bytes, begin: int) -> int:
    end = body.find(b'"', begin)
    return len(body) if end < 0 else end


def _says_base64(body: bytes, name_at: int, end: int) -> bool:
    before = _SAYS_BASE64.search(body, max(0, name_at - _BESIDE_BYTES), name_at)
    return bool(before or _SAYS_BASE64.search(body, end, end + _BESIDE_BYTES))


def _base64_bytes(body: bytes, begin: int, end: int) -> int:
    """How long a string is that is base64 and nothing else, 0 for any other."""
    if end - begin < _LEAST_MEDIA_BYTES:
        return 0
    rest = body[begin:end].translate(None, _BASE64)
    if rest:
        # Some writers of JSON escape slashes, and some of base64 break lines.
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
