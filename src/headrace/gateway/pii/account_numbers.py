"""Numbers of cards, of bank accounts and of social security."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Digits with single spaces or hyphens between them.
_CARD_RUN = re.compile(r"[0-9](?:[ -]?[0-9])*+")
# What every scheme begins with, and digits enough.
_CARD_BEGINNING = re.compile(r"[2-6](?:[ -]?[0-9]){12}")
_GROUP = re.compile(r"[0-9]+")
_LEAST_CARD, _MOST_CARD = 13, 19
# Nobody writes one in more.
_MOST_CARD_GROUPS = 6
# First digits, from and to, and the numbers of digits that the scheme has given out.
_SCHEMES = (
    ("4", "4", (13, 16, 19)),  # Visa
    ("51", "55", (16,)),  # Mastercard
    ("2221", "2720", (16,)),
    ("34", "34", (15,)),  # American Express
    ("37", "37", (15,)),
    ("6011", "6011", (16, 19)),  # Discover
    ("644", "649", (16, 19)),
    ("65", "65", (16, 19)),
    ("300", "305", (14,)),  # Diners Club
    ("36", "36", (14, 19)),
    ("38", "39", (14, 19)),
    ("3528", "3589", (16, 19)),  # JCB
    ("62", "62", (16, 17, 18, 19)),  # UnionPay
    ("50", "50", (16, 18, 19)),  # Maestro
    ("56", "58", (16, 18, 19)),
    ("6304", "6304", (16, 18, 19)),
    ("6759", "6763", (16, 18, 19)),
)

# Numbers of digits by the first four of them.
_LENGTHS_BY_BEGINNING: dict[str, tuple[int, ...]] = {}
for _first, _last, _lengths in _SCHEMES:
    for _beginning in range(int(_first.ljust(4, "0")), int(_last.ljust(4, "9")) + 1):
        _LENGTHS_BY_BEGINNING[str(_beginning)] = (
            *_LENGTHS_BY_BEGINNING.get(str(_beginning), ()), *_lengths,
        )  # fmt: skip
# What each digit counts in Luhn's check, and every second one.
_VALUES = bytes.maketrans(b"0123456789", bytes(range(10)))
_DOUBLED = bytes.maketrans(b"0123456789", bytes((0, 2, 4, 6, 8, 1, 3, 5, 7, 9)))

_IBAN_HEAD = re.compile(r"(?<![0-9A-Za-z])[A-Za-z]{2}[0-9]{2}")
# Characters of an IBAN by country: ISO 13616, as the SWIFT registry lists them.
_IBAN_LENGTHS = {
    name: int(length)
    for length, names in (
        line.split(":")
        for line in (
            "15:NO",
            "16:BE",
            "18:DK FK FO FI GL NL SD",
            "19:MK SI",
            "20:AT BA EE KZ LT LU MN XK",
            "21:CH HR LI LV",
            "22:BG BH CR DE GB GE IE ME RS VA",
            "23:AE GI IL IQ OM SO TL",
            "24:AD CZ ES MD PK RO SA SE SK TN VG",
            "25:LY PT ST",
            "26:IS TR",
            "27:BI DJ FR GR IT MC MR SM",
            "28:AL AZ BY CY DO GT HU LB NI PL SV",
            "29:BR EG PS QA UA",
            "30:JO KW MU YE",
            "31:MT SC",
            "32:LC",
            "33:RU",
        )
    )
    for name in names.split()
}

# With single spaces or hyphens between.
_IBAN_OF_LENGTH = {
    length: re.compile(rf"[0-9A-Za-z](?:[ -]?[0-9A-Za-z]){{{length - 1}}}")
    for length in set(_IBAN_LENGTHS.values())
}
_WITHOUT_BETWEEN = str.maketrans("", "", " -")
_LETTER_VALUES = {ord("A") + at: str(10 + at) for at in range(26)}

_SSN = re.compile(r"(?<![0-9A-Za-z_.-])[0-9]{3}([ -])[0-9]{2}\1[0-9]{4}(?![0-9A-Za-z_-])")


def credit_cards(text: str) -> Iterator[tuple[int, int]]:
    """First digits and length of a scheme, and a right check digit."""
    for run in _CARD_RUN.finditer(text):
        if run.end() - run.start() < _LEAST_CARD:
            continue
        before, after = text[run.start() - 1 : run.start()], text[run.end() : run.end() + 1]
        groups = [one.span() for one in _GROUP.finditer(text, *run.span())]
        if before.isalpha() or before in ("_", "."):
            groups = groups[1:]
        if after.isalpha() or after == "_":
            groups = groups[:-1]
        at = 0
        while at < len(groups):
            begins = _CARD_BEGINNING.match(text, groups[at][0]) is not None
            taken = _card_groups(text, groups, at) if begins else 0
            if taken:
                yield groups[at][0], groups[at + taken - 1][1]
            at += taken or 1


def _card_groups(text: str, groups: list[tuple[int, int]], at: int) -> int:
    """The number of groups from there on that form a card number; 0 if none do."""
    digits = ""
    best = 0
    for taken, (start, end) in enumerate(groups[at : at + _MOST_CARD_GROUPS], 1):
        if len(digits) + end - start > _MOST_CARD:
            break
        digits += text[start:end]
        if len(digits) >= _LEAST_CARD and is_card(digits):
            best = taken
    return best


def is_card(digits: str) -> bool:
    """Whether the digits are of a known scheme and pass Luhn's check."""
    return len(digits) in _LENGTHS_BY_BEGINNING.get(digits[:4], ()) and passes_luhn(digits)


def passes_luhn(digits: str) -> bool:
    """Whether the last digit is the check digit of the others."""
    told = digits.encode()
    return (sum(told[::-2].translate(_VALUES)) + sum(told[-2::-2].translate(_DOUBLED))) % 10 == 0


def ibans(text: str) -> Iterator[tuple[int, int]]:
    """IBANs with a length valid for their country and right check digits; spaces or hyphens may
    divide them."""
    after = 0
    for head in _IBAN_HEAD.finditer(text):
        start = head.start()
        wanted = _IBAN_LENGTHS.get(head[0][:2].upper())
        if wanted is None or start < after:
            continue
        found = _IBAN_OF_LENGTH[wanted].match(text, start)
        if found is None or text[found.end() : found.end() + 1].isalnum():
            continue
        if has_check_digits(found[0].translate(_WITHOUT_BETWEEN).upper()):
            yield found.span()
            after = found.end()


def has_check_digits(iban: str) -> bool:
    """Whether the two digits after the country are right: ISO 7064, modulo 97."""
    turned = iban[4:] + iban[:4]
    return int(turned.translate(_LETTER_VALUES)) % 97 == 1


def us_ssns(text: str) -> Iterator[tuple[int, int]]:
    """Social security numbers of the United States, with hyphens or spaces; nine plain digits are
    too often something else."""
    for found in _SSN.finditer(text):
        area, group, serial = re.split("[ -]", found[0])
        if area not in ("000", "666") and area < "900" and group != "00" and serial != "0000":
            yield found.span()
