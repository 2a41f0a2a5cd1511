"""Requests and answers as they were told, kept for search and replay."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.errors import ConfigError
from headrace.gateway.pii.span import PiiKind
from headrace.gateway.settings.provider import SecretText, Text

DEFAULT_PATH = "requests.sqlite3"


class RedactSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is replaced in bodies before anything of them is written."""

    pii: Annotated[
        tuple[PiiKind, ...],
        Meta(
            description="Personal data and secrets that become [EMAIL] and so on: api_key, email, "
            "iban, credit_card, ip, us_ssn, phone."
        ),
    ] = ("api_key",)
    patterns: Annotated[
        dict[Annotated[str, Meta(pattern="^[A-Za-z][A-Za-z0-9_]{0,63}$")], Text],
        Meta(
            description="Own regular expressions (RE2's syntax; pip install "
            "'headrace[guardrails]') by the name that stands in brackets in place of what they "
            "match."
        ),
    ] = msgspec.field(default_factory=dict)
    fields: Annotated[
        tuple[Text, ...],
        Meta(
            description="Globs of names of JSON fields, whatever their case, whose whole values "
            "become [REDACTED]; in arguments of tools too."
        ),
    ] = ()
    media: Annotated[
        bool,
        Meta(
            description="Whether pictures, sounds and files in base64 are replaced by their size "
            "and SHA-256, and vectors of embeddings by their length."
        ),
    ] = True


class RequestLogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The request log: off unless the file turns it on, since no prompt is kept that nobody asked
    to keep."""

    enabled: Annotated[bool, Meta(description="Whether requests and answers are kept at all.")] = (
        False
    )
    store: Annotated[
        Literal["sqlite", "postgresql"],
        Meta(
            description="Where they are: in a file, or in PostgreSQL (pip install "
            "'headrace[postgres]')."
        ),
    ] = "sqlite"
    path: Annotated[
        Text | None,
        Meta(
            description="The file of `store: sqlite`, from the folder of this one; "
            f"{DEFAULT_PATH} without a name. Taken at the start."
        ),
    ] = None
    url: Annotated[
        SecretText | None,
        Meta(
            description="Of `store: postgresql`: postgresql://user:password@host/database, best as "
            "env:NAME or file:PATH. Taken at the start."
        ),
    ] = None
    bodies: Annotated[
        Literal["all", "errors", "none"],
        Meta(
            description="Whose bodies are kept; of the others what the ledger says of them. "
            "errors: of all that did not end as answered."
        ),
    ] = "all"
    max_body_bytes: Annotated[
        int,
        Meta(
            ge=1024,
            le=64 * 2**20,
            description="Of each request and each reply at most so much is kept, after media and "
            "personal data were replaced; what is longer is cut and marked so.",
        ),
    ] = 256 * 2**10
    models: Annotated[
        tuple[Text, ...],
        Meta(
            description="Models whose requests are kept, by names and globs of what is asked for."
        ),
    ] = ("*",)
    keys: Annotated[
        tuple[Text, ...] | None,
        Meta(description="Globs of ids of keys whose requests are kept; null for all, with teams."),
    ] = None
    teams: Annotated[
        tuple[Text, ...] | None,
        Meta(
            description="Globs of teams whose requests are kept; null for all. Where keys and "
            "teams are named, either will do."
        ),
    ] = None
    counts: Annotated[
        bool,
        Meta(
            description="Whether requests to count the tokens of a prompt are kept too; many "
            "clients send each prompt to be counted before they ask it."
        ),
    ] = False
    sample: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="The part of requests that is kept: by a hash of their id, so that every "
            "process of a gateway chooses the same.",
        ),
    ] = 1.0
    redact: RedactSettings = RedactSettings()
    retention_days: Annotated[
        Annotated[int, Meta(ge=1, le=36_500)] | None,
        Meta(description="Older ones are deleted; null keeps all."),
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
            raise ConfigError("path: only `store: sqlite` has a file; take one of the two out")
        if self.store == "sqlite" and self.url is not None:
            raise ConfigError("url: only `store: postgresql` has one; take one of the two out")
