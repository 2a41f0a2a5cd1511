"""Addresses of mail and of the Internet."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

# The bounds of RFC 5321; they also bound how far each @ is looked around.
_LOCAL_CHARS = 64
_DOMAIN_CHARS = 253
_LOCAL = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+/=?^_`{|}~.-"
)
_DOMAIN = re.compile(rf"[0-9A-Za-z\u0080-\uffff.-]{{1,{_DOMAIN_CHARS}}}")
_LABEL = re.compile(r"(?!-)[0-9A-Za-z\u0080-\uffff-]{1,63}(?<!-)")
_TOP_LABEL = re.compile(r"[A-Za-z\u0080-\uffff]{2,63}|xn--[0-9A-Za-z-]{2,59}")
# An @ that may be of an address: behind a character of a local part, and before a label, a dot and
# what a top label begins with. Others are passed over at once.
_AT = re.compile(
    r"(?<=[0-9A-Za-z!#$%&'*+/=?^_`{|}~.\-\u0080-\U0010ffff])@"
    r"(?=(?:[0-9A-Za-z\u0080-\uffff-]{1,63}\.){1,126}(?:[A-Za-z\u0080-\uffff]{2}|xn--))"
)
# What quotes and surrounds an address rather than belongs to it.
_AROUND = "'`.{|}*_/=?!#$%&^~"

_V4 = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
_V6_RUN = re.compile(r"[0-9A-Fa-f:.]+")
_MOST_V6_CHARS = 45
_LEAST_V6_CHARS = 6


def emails(text: str) -> Iterator[tuple[int, int]]:
    """Local part, @, and a domain with a dot in it."""
    after = 0
    at = 0
    while found := _AT.search(text, at):
        at = start = found.start()
        lowest = max(after, at - _LOCAL_CHARS)
        while start > lowest and (text[start - 1] in _LOCAL or _is_letter(text[start - 1])):
            start -= 1
        while start < at and text[start] in _AROUND:
            start += 1
        end = _domain_end(text, at + 1)
        if start < at and end:
            yield start, end
            after = end
        at = max(at + 1, end)


def _is_letter(char: str) -> bool:
    return char > "\x7f" and char.isalnum()


def _domain_end(text: str, start: int) -> int:
    """0 where there is no domain."""
    found = _DOMAIN.match(text, start)
    if found is None:
        return 0
    labels = []
    for label in found[0].split("."):
        if _LABEL.fullmatch(label) is None:
            break
        labels.append(label)
    while len(labels) > 1 and _TOP_LABEL.fullmatch(labels[-1]) is None:
        labels.pop()
    if len(labels) < 2:
        return 0
    return start + sum(map(len, labels)) + len(labels) - 1


def ips(text: str) -> Iterator[tuple[int, int]]:
    """IP addresses of version 4 and 6, without a port and without a prefix length."""
    if ":" in text:
        for run in _V6_RUN.finditer(text):
            yield from _v6(text, run.start(), run.end())
    for found in _V4.finditer(text):
        start, end = found.span()
        before, after = text[start - 1 : start], text[end : end + 2]
        # A fifth number, or a part of a word, makes it something else; so does a version's v.
        if before in (".", "_", "-") or before.isalnum():
            continue
        if after[:1].isalnum() or after[:1] == "_" or (after[:1] == "." and after[1:].isdigit()):
            continue
        if all(int(part) <= 255 for part in found[0].split(".")):
            yield start, end


def _v6(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    while end > start and text[end - 1] == ".":
        end -= 1
    if text[end - 1] == ":" and text[end - 2 : end] != "::":
        end -= 1
    if not _LEAST_V6_CHARS <= end - start <= _MOST_V6_CHARS or text.count(":", start, end) < 2:
        return
    before, after = text[start - 1 : start], text[end : end + 1]
    if before.isalnum() or before == "_" or after.isalnum() or after == "_":
        return
    told = text[start:end]
    # a::b is a name of C++ to most who write it, and ::1 and 1::2 may cut a list.
    if sum(1 for group in told.split(":") if group) < 2 or not any(map(str.isdigit, told)):
        return
    try:
        ipaddress.IPv6Address(told)
    except ValueError:
        return
    yield start, end
