"""Keys of the gateway: made from a random source, shown once, kept as SHA-256 digests.

A digest without salt is enough for unpredictable keys: these hold 256 random bits.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable

import msgspec

from headrace.errors import ConfigError

PREFIX = "hr-"
_RANDOM_BYTES = 32
# No key is longer; what is longer is refused unread.
MAX_KEY_CHARACTERS = 512
_SHOWN_END = 4

RandomBytes = Callable[[int], bytes]
"""A source of that many unpredictable bytes: secrets.token_bytes, or a test's."""


class Secret(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is stored."""

    digest: str
    """SHA-256 in hexadecimal."""
    end: str = ""
    """Its last four characters, for people."""
    expires_ms: int | None = None
    """Until when it is valid, in milliseconds since 1970; None for always."""

    def __post_init__(self) -> None:
        if len(self.digest) != 64 or set(self.digest) - set("0123456789abcdef"):
            raise ConfigError(
                "digest: a key's SHA-256 digest has 64 lower-case hexadecimal digits; `printf "
                "%s KEY | sha256sum` prints it"
            )


class NewKey:
    """A key just made. It can be read once by `reveal`, and is in no repr."""

    __slots__ = ("_key", "key_id", "secret")

    def __init__(self, key: str, key_id: str, secret: Secret) -> None:
        self._key: str | None = key
        self.key_id = key_id
        self.secret = secret

    def reveal(self) -> str:
        """The key, the first time; ValueError after that."""
        if self._key is None:
            raise ValueError("a key is shown only once; rotate it to get another")
        key, self._key = self._key, None
        return key

    def __repr__(self) -> str:
        return f"NewKey({self.key_id!r}, ends in {self.secret.end!r})"


def make_key(random_bytes: RandomBytes) -> str:
    """A new key: "hr-" and 43 characters of the URL-safe alphabet."""
    text = base64.urlsafe_b64encode(random_bytes(_RANDOM_BYTES)).decode().rstrip("=")
    return PREFIX + text


def digest_of(presented: str) -> bytes | None:
    """SHA-256 of what was presented; None for what can be no key."""
    if not 0 < len(presented) <= MAX_KEY_CHARACTERS or not presented.isascii():
        return None
    return hashlib.sha256(presented.encode()).digest()


def secret_of(key: str, *, expires_ms: int | None = None) -> Secret:
    """The stored form of a key. Raises ConfigError (without the key) if no header can carry it."""
    digest = digest_of(key)
    if digest is None or not all("!" <= letter <= "~" for letter in key):
        raise ConfigError(
            f"a key has {len(key)} characters, or some that are not visible ASCII; use 1 to "
            f"{MAX_KEY_CHARACTERS} letters, digits and punctuation marks without spaces"
        )
    # Of a short key four characters would be too much of it.
    end = key[-_SHOWN_END:] if len(key) >= 5 * _SHOWN_END else ""
    return Secret(digest=digest.hex(), end=end, expires_ms=expires_ms)
