"""What may be secret of an endpoint, and how it is taken out of what is shown or kept.

Whatever a user gives as a key, as a header's value or in an address's query may be a secret: names
do not tell. A server may repeat it anywhere: in an error, in an answer, in its metrics. In a
message every secret is blotted out; in answers and metrics none of fewer than 8 characters, because
`none`, `test` or `vllm` stand for keys where none is asked for, and are words that models say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from urllib.parse import unquote_plus, urlsplit

BLOT = "********"
"""Replaces a secret."""

SECRET_WORDS = ("auth", "key", "token", "cookie", "secret", "pass", "credential", "session")
"""A header with one of these in its name holds a secret, however short."""

# Their values are the protocol's own words.
_PUBLIC = frozenset(
    {
        "accept",
        "accept-encoding",
        "accept-language",
        "anthropic-beta",
        "anthropic-version",
        "connection",
        "content-type",
        "host",
        "user-agent",
    }
)
# A shorter value of no such name is a word, a number or a switch; blotted out it would take parts
# of other words with it.
_SHORTEST = 6
_SHORTEST_IN_ANSWERS = 8
_SCHEMES = ("Bearer", "bearer", "Digest", "digest")
_PARTS = re.compile(r"[\s;,=]+")
_METRIC_NAME = re.compile(r"(?:# (?:HELP|TYPE) )?[A-Za-z_:][A-Za-z0-9_:]*")


def secrets_of(
    api_key: str | None, base_url: str, headers: Mapping[str, str], path: str | None = None
) -> tuple[str, ...]:
    """Each once; a header's value whole, and its parts, as those of a cookie are."""
    found = [api_key or ""]
    for name, value in headers.items():
        lowered = name.lower()
        if lowered in _PUBLIC:
            continue
        parts = [value, *_PARTS.split(value)]
        if any(word in lowered for word in SECRET_WORDS):
            found += [value, value.rpartition(" ")[2]]
        found += [part for part in parts if len(part) >= _SHORTEST and part not in _SCHEMES]
    for address in (base_url, path or ""):
        found += _of_query(address)
    return tuple(dict.fromkeys(secret for secret in found if secret))


def _of_query(address: str) -> list[str]:
    """As it is written and as it is meant."""
    query = address.partition("?")[2].partition("#")[0]
    values = [part.partition("=")[2] or part for part in re.split("[&;]", query)]
    both = [one for value in values for one in (value, unquote_plus(value))]
    with suppress(ValueError):  # no address: whoever sends there says so
        both.append(urlsplit(address).password or "")
    return [one for one in both if len(one) >= _SHORTEST]


def blotted(text: str, secrets: Iterable[str]) -> str:
    """`text` with a blot in place of each secret, the longest first."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, BLOT)
    return text


def long_ones(secrets: Iterable[str]) -> tuple[str, ...]:
    """Those that are looked for in answers and metrics."""
    return tuple(secret for secret in secrets if len(secret) >= _SHORTEST_IN_ANSWERS)


def blotted_pieces(pieces: Sequence[str], secrets: Sequence[str]) -> list[str]:
    """Of an answer's text as many pieces; a secret may lie across several of them."""
    whole = "".join(pieces)
    spans = _spans(whole, long_ones(secrets))
    if not spans:
        return list(pieces)
    told = []
    for end, piece in zip(accumulate(map(len, pieces)), pieces, strict=True):
        start = end - len(piece)
        kept, at = [], start
        for first, last in spans:
            if piece and first < end and last > start:
                kept += [whole[at : max(first, start)], BLOT]
                at = min(last, end)
        told.append("".join(kept) + whole[at:end])
    return told


def _spans(text: str, secrets: Sequence[str]) -> list[tuple[int, int]]:
    """Where secrets are, in order, none over another."""
    found = sorted(
        (match.start(), match.end())
        for secret in secrets
        if secret in text
        for match in re.finditer(re.escape(secret), text)
    )
    merged: list[tuple[int, int]] = []
    for first, last in found:
        if merged and first < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def blotted_metrics(text: str, secrets: Sequence[str]) -> str:
    """An exposition of metrics, whose names stay: `vllm` may be a key and is a part of names."""
    secrets = [secret for secret in long_ones(secrets) if secret in text]
    if not secrets:
        return text
    lines = []
    for line in text.split("\n"):
        name = _METRIC_NAME.match(line)
        end = name.end() if name is not None else 0
        lines.append(line[:end] + blotted(line[end:], secrets))
    return "\n".join(lines)


def as_in_json(secrets: Iterable[str]) -> tuple[bytes, ...]:
    """The ways in which they may stand in a body, as it came."""
    ways = []
    for secret in long_ones(secrets):
        plain, escaped = json.dumps(secret, ensure_ascii=False), json.dumps(secret)
        ways += [secret, plain[1:-1], escaped[1:-1], escaped[1:-1].replace("/", "\\/")]
    return tuple(dict.fromkeys(way.encode("utf-8", "surrogatepass") for way in ways))
