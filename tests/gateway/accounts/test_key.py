"""Keys: random, shown once, kept as digests, and in no text."""

from __future__ import annotations

import hashlib
import secrets

import pytest

from headrace.errors import ConfigError
from headrace.gateway.accounts import NewKey, Secret, make_key, secret_of
from headrace.gateway.accounts.key import digest_of


def test_a_key_has_256_random_bits() -> None:
    asked: list[int] = []

    def source(count: int) -> bytes:
        asked.append(count)
        return bytes(range(count))

    key = make_key(source)
    assert asked == [32]
    assert key.startswith("hr-") and len(key) == 46
    assert key.isascii() and not set(key) - set(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    )
    assert len({make_key(secrets.token_bytes) for _ in range(100)}) == 100


def test_a_secret_is_a_digest_and_four_characters() -> None:
    key = make_key(secrets.token_bytes)
    secret = secret_of(key)
    assert secret.digest == hashlib.sha256(key.encode()).hexdigest()
    assert secret.end == key[-4:]
    assert key not in repr(secret) and key[3:20] not in repr(secret)


def test_of_a_short_key_nothing_is_shown() -> None:
    assert secret_of("sk-1234").end == ""


def test_a_new_key_is_shown_once() -> None:
    key = make_key(secrets.token_bytes)
    new = NewKey(key, "k1", secret_of(key))
    assert key not in repr(new) and key not in str(new) and key not in f"{new}"
    assert new.reveal() == key
    with pytest.raises(ValueError, match="shown only once"):
        new.reveal()


@pytest.mark.parametrize("key", ["", "with space", "tab\t", "NUL\0", "ключ", "x" * 513, "\udc80"])
def test_a_key_that_no_header_carries_is_refused_without_its_text(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        secret_of(key)
    assert not key or key not in str(caught.value)


def test_what_can_be_no_key_is_not_hashed() -> None:
    assert digest_of("x" * 513) is None
    assert digest_of("x" * 10**7) is None
    assert digest_of("é") is None
    assert digest_of("") is None
    assert digest_of("\ud800") is None
    assert digest_of("a\0b") is not None  # only unknown


@pytest.mark.parametrize("digest", ["", "0" * 63, "G" * 64, "A" * 64, "0" * 65])
def test_a_digest_has_64_hex_digits(digest: str) -> None:
    with pytest.raises(ConfigError, match="sha256sum"):
        Secret(digest=digest)
