"""What each detector takes for what, and what it leaves alone."""

from __future__ import annotations

import pytest

from headrace.gateway.pii.find import find
from headrace.gateway.pii.redact import redact
from headrace.gateway.pii.span import KINDS, PiiKind, Span

FOUND: dict[PiiKind, tuple[str, ...]] = {
    "email": (
        "bob@example.com",
        "a.b+c@sub.example.co.uk",
        "o'hara@example.ie",
        "x@xn--bcher-kva.xn--p1ai",
        "jürgen@bücher.example",
        "BOB_99%x@EXAMPLE.COM",
    ),
    "phone": (
        "+49 30 1234567",
        "+1 (212) 555-0123",
        "+12125550123",
        "(212) 555-0123",
        "212-555-0123",
        "212.555.0123",
        "1-800-555-0199",
        "0049 171 2345678",
        "00 44 20 7946 0958",
        "030 1234567",
        "020 7946 0958",
        "01 23 45 67 89",
        "+44 (0)20 7946 0958",
        "+41 44 668 18 00",
    ),
    "credit_card": (
        "4111111111111111",
        "4111 1111 1111 1111",
        "5555-5555-5555-4444",
        "3782 822463 10005",
        "6011111111111117",
        "3530111333300000",
        "30569309025904",
        "2223003122003222",
        "4111\u00a01111\u00a01111\u00a01111",
        "４１１１１１１１１１１１１１１１",
    ),
    "iban": (
        "DE89370400440532013000",
        "DE89 3704 0044 0532 0130 00",
        "GB82WEST12345698765432",
        "GB82-WEST-1234-5698-7654-32",
        "fr1420041010050500013m02606",
        "NO9386011117947",
        "MT84MALT011000012345MTLCAST001S",
    ),
    "ip": (
        "10.0.0.1",
        "255.255.255.255",
        "2001:db8::1",
        "fe80::1ff:fe23:4567:890a",
        "2001:0db8:85a3:0000:0000:8a2e:0370:7334",
        "::ffff:192.0.2.128",
    ),
    "us_ssn": ("123-45-6789", "899 12 0001"),
    "api_key": (
        "sk-proj-abcdefghijklmnop1234567890",
        "sk-ant-api03-abcDEF_123-456789012345",
        "hr-" + "a1B2" * 10 + "xyz",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_" + "a1" * 18,
        "AIza" + "Sy1" * 12,
        "hf_" + "Ab3" * 11,
        "xoxb-123456789012-abcdefghijkl",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIB\nAQ==\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nMIIB",
    ),
}
LEFT_ALONE: dict[PiiKind, tuple[str, ...]] = {
    "email": ("bob@localhost", "@decorator", "a @ b.com", "user@", "x@-a.com", "x@a..com", "@x.com",
              "git@1.2", "f(a)@b"),
    "phone": ("1234567890", "1700000000", "2026-11-22", "22.11.2026 14:55", "01.02.2026 10:30:00",
              "3.14159265358979", "1,234,567,890", "12 34 56", "555-0123", "112-555-0123",
              "v2.0.13.0045", "https://x/0123/456/7890", "000-12-3456", "a0123 456789b",
              "req-0123-4567-8901", "0 1 2 3 4 5 6 7 8 9", "978-3-16-148410-0",
              "$100 200 3000"),
    "credit_card": ("4111111111111112", "1234567890123456", "0000000000000000",
                    "41111111111111111111", "a4111111111111111", "4111111111111111b",
                    "4111  1111  1111  1111", "1.4111111111111111", "9111 1111 1111 1111"),
    "iban": ("DE88370400440532013000", "DE8937040044053201300", "DE893704004405320130001",
             "XX89370400440532013000", "xDE89370400440532013000", "DE89"),
    "ip": ("256.1.1.1", "1.2.3", "1.2.3.4.5", "v1.2.3.4", "12:30:45", "std::vector", "a::b",
           "x[::2]", "[1:2:3]", "aa:bb:cc:dd:ee:ff", "face::Add", "::", "1.2.3.4a", "12345::1"),
    "us_ssn": ("000-12-3456", "666-12-3456", "900-12-3456", "123-00-4567", "123-45-0000",
               "123456789", "123-45 6789", "1123-45-6789", "123-45-67890", "x-123-45-6789"),
    "api_key": ("sk-learn-is-a-python-package-of-many", "sk-short1",
                "task-abcdefghijklmnop1234567890", "-----BEGIN CERTIFICATE-----", "ghp_short",
                "hf_transfer", "a_sk-abcdefghijklmnop1234567890"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "text"), [(k, t) for k, texts in FOUND.items() for t in texts])
@pytest.mark.parametrize(
    "around", ["{}", "so: {}.", "({})", '"{}"', "<{}>", "ä {}, and", "a\n{}\nb"]
)
def test_found_whole_and_nothing_else(kind: PiiKind, text: str, around: str) -> None:
    whole = around.format(text)
    at = whole.index(text)
    if text.startswith("-----BEGIN") and "END" not in text:
        assert find(whole) == [Span(at, len(whole), kind)]
        return
    start = at - 1 if kind == "phone" and around == "({})" and text[0].isdigit() else at
    assert find(whole) in ([Span(at, at + len(text), kind)], [Span(start, at + len(text), kind)])


@pytest.mark.parametrize(
    ("kind", "text"), [(k, t) for k, texts in LEFT_ALONE.items() for t in texts]
)
def test_left_alone(kind: PiiKind, text: str) -> None:
    for around in ("{}", "so: {}.", "a {} b"):
        assert find(around.format(text), [kind]) == []


def test_several_in_their_order() -> None:
    text = "bob@example.com has 4111 1111 1111 1111, DE89 3704 0044 0532 0130 00 and +49 30 1234567"
    assert redact(text) == "[EMAIL] has [CREDIT_CARD], [IBAN] and [PHONE]"
    assert redact(text, ["email", "phone"]) == (
        "[EMAIL] has 4111 1111 1111 1111, DE89 3704 0044 0532 0130 00 and [PHONE]"
    )
    assert redact(text, []) == text


@pytest.mark.parametrize("kind", KINDS)
def test_redacting_twice_is_redacting_once(kind: PiiKind) -> None:
    for text in FOUND[kind]:
        once = redact(f"{text} {text}")
        assert text not in once
        assert redact(once) == once


def test_cards_one_after_the_other() -> None:
    text = "4111 1111 1111 1111 5555 5555 5555 4444 12"
    assert redact(text) == "[CREDIT_CARD] [CREDIT_CARD] 12"


def test_an_email_in_an_address_of_the_web() -> None:
    assert redact("mailto:bob@example.com?subject=x") == "mailto:[EMAIL]?subject=x"
    assert redact("https://user@example.com/x") == "https://[EMAIL]/x"
