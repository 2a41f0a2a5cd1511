"""Requests and answers as they were sent, kept for search and replay."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.errors import ConfigError
from headrace.gateway.pii.span import PiiKind
from headrace.gateway.settings.provider import SecretText, Text

DEFAULT_PATH = "requests.sqlite3"


class RedactSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Replacements in bodies before they are written."""

    pii: Annotated[
        tuple[PiiKind, ...],
        Meta(
            description="Personal data and secrets that are replaced by [EMAIL] and so on: "
            "api_key, "
            "email, iban, credit_card, ip, us_ssn, phone."
        ),
    ] = ("api_key",)
    patterns: Annotated[
        dict[Annotated[str, Meta(pattern="^[A-Za-z][A-Za-z0-9_]{0,63}$")], Text],
        Meta(
            description="Your own regular expressions (RE2's syntax; pip install "
            "'headrace[guardrails]') by name; the name in brackets replaces what they match."
        ),
    ] = msgspec.field(default_factory=dict)
    fields: Annotated[
        tuple[Text, ...],
        Meta(
            description="Globs of names of JSON fields, ignoring case, whose whole values become "
            "[REDACTED]; in tool arguments too."
        ),
    ] = ()
    media: Annotated[
        bool,
        Meta(
            description="Whether images, sounds and files in base64 are replaced by their size and "
            "SHA-256, and vectors of embeddings by their length."
        ),
    ] = True


class RequestLogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The request log. It is off by default, so that no prompt is kept unless somebody decided to
    keep it."""

    enabled: Annotated[
        bool, Meta(description="Whether requests and answers are logged at all.")
    ] = False
    store: Annotated[
        Literal["sqlite", "postgresql"],
        Meta(
            description="Where they are stored: in a file, or in PostgreSQL (pip install "
            "'headrace[postgres]')."
        ),
    ] = "sqlite"
    path: Annotated[
        Text | None,
        Meta(
            description="The file of `store: sqlite`, relative to this one's folder; "
            f"{DEFAULT_PATH} if "
            "omitted. Read only at start."
        ),
    ] = None
    url: Annotated[
        SecretText | None,
        Meta(
            description="For `store: postgresql`: postgresql://user:password@host/database, best "
            "as "
            "env:NAME or file:PATH. Read only at start."
        ),
    ] = None
    bodies: Annotated[
        Literal["all", "errors", "none"],
        Meta(
            description="Requests whose bodies are stored; for the others only what the ledger "
            "has is "
            "stored. errors: all requests with another outcome than answered."
        ),
    ] = "all"
    max_body_bytes: Annotated[
        int,
        Meta(
            ge=1024,
            le=64 * 2**20,
            description="Largest part of each request and each reply that is stored, after media "
            "and "
            "personal data were replaced; the rest is cut off and the body marked as cut.",
        ),
    ] = 256 * 2**10
    models: Annotated[
        tuple[Text, ...],
        Meta(
            description="Models whose requests are logged: names and globs, matched against the "
            "requested name."
        ),
    ] = ("*",)
    keys: Annotated[
        tuple[Text, ...] | None,
        Meta(
            description="Globs of ids of keys whose requests are logged; null for all, with teams."
        ),
    ] = None
    teams: Annotated[
        tuple[Text, ...] | None,
        Meta(
            description="Globs of teams whose requests are logged; null for all. If keys and "
            "teams are "
            "given, a match of either is enough."
        ),
    ] = None
    counts: Annotated[
        bool,
        Meta(
            description="Whether requests that count the tokens of a prompt are logged too; many "
            "clients send each prompt to be counted first."
        ),
    ] = False
    sample: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="Share of requests that is logged: by a hash of their id, so that every "
            "process "
            "of a gateway chooses the same.",
        ),
    ] = 1.0
    redact: RedactSettings = RedactSettings()
    retention_days: Annotated[
        Annotated[int, Meta(ge=1, le=36_500)] | None,
        Meta(description="Older requests are deleted; null keeps all."),
    ] = 30
    max_waiting: Annotated[
        int, Meta(ge=1, description="How many may wait in memory while the store is down.")
    ] = 10_000
    max_waiting_bytes: Annotated[
        int,
        Meta(ge=2**20, description="How large they may be together; beyond it they are lost."),
    ] = 64 * 2**20

    def __post_init__(self) -> None:
        if self.store == "postgresql" and self.url is None:
            raise ConfigError(
                "url: `store: postgresql` needs one; write url: env:NAME and put "
                "postgresql://user:password@host/database into that variable"
            )
        if self.store == "postgresql" and self.path is not None:
            raise ConfigError("path: only `store: sqlite` has a file; remove one of the two")
        if self.store == "sqlite" and self.url is not None:
            raise ConfigError("url: only `store: postgresql` has one; remove one of the two")
