"""Where a text has personal data or secrets.

Every detector takes time linear in the text, whatever the text is: candidates are found by patterns
that cannot go back, and looked at by hand. They are exact where there is something to check (Luhn,
check digits, ranges of numbers) and otherwise want a shape that ordinary text seldom has; none of
them knows names or addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from headrace.gateway.pii.account_numbers import credit_cards, ibans, us_ssns
from headrace.gateway.pii.addresses import emails, ips
from headrace.gateway.pii.api_keys import api_keys
from headrace.gateway.pii.glance import likely
from headrace.gateway.pii.phones import phones
from headrace.gateway.pii.plain import plain
from headrace.gateway.pii.span import KINDS, PiiKind, Span

Detector = Callable[[str], Iterator[tuple[int, int]]]

DETECTORS: Mapping[PiiKind, Detector] = {
    "api_key": api_keys,
    "email": emails,
    "iban": ibans,
    "credit_card": credit_cards,
    "ip": ips,
    "us_ssn": us_ssns,
    "phone": phones,
}


def find(text: str, kinds: Collection[PiiKind] = KINDS) -> list[Span]:
    """Matches in the order of the text, without overlaps: of two that overlap, the kind that is
    first in KINDS wins. Wide digits and other spaces and hyphens count as plain ones; positions are
    those of `text`."""
    looked_at = plain(text)
    wanted = likely(looked_at, kinds)
    if not wanted:
        return []
    taken = bytearray(len(text))
    found = []
    for kind in KINDS:
        if kind not in wanted:
            continue
        for start, end in DETECTORS[kind](looked_at):
            if taken.find(1, start, end) < 0:
                taken[start:end] = b"\x01" * (end - start)
                found.append(Span(start, end, kind))
    found.sort()
    return found
