"""Who may ask, and for how much."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.gateway.settings.provider import SecretText, Text

WindowName = Literal["1m", "5m", "1h", "1d", "1w", "1M", "1Y", "total"]
Count = Annotated[int, Meta(ge=0, le=2**60)]


class BudgetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """At most so much per window. What running requests may yet take is held back in it."""

    usd: Annotated[float, Meta(ge=0, le=1e9, description="US dollars.")]
    per: Annotated[
        WindowName,
        Meta(description="Window: minute, 5 minutes, hour, day, week, month, year, or all time."),
    ]
    calendar: Annotated[bool, Meta(description="By the calendar of UTC, else rolling.")] = False
    models: Annotated[Text, Meta(description="A name or glob; others do not count.")] = "*"
    unknown_price: Annotated[
        Literal["refuse", "allow"],
        Meta(description="What becomes of requests whose price nobody knows."),
    ] = "refuse"
    alerts: Annotated[
        tuple[Annotated[float, Meta(gt=0, le=1)], ...],
        Meta(description="Shares of it at which it is told, once a window."),
    ] = (0.5, 0.85, 0.95, 1.0)


class LimitSettings(msgspec.Struct, frozen=True, kw_only=True):
    """In any 60 seconds, and at once."""

    rpm: Annotated[Count | None, Meta(description="Requests in any minute.")] = None
    tpm: Annotated[Count | None, Meta(description="Tokens in any minute, prompts and answers.")] = (
        None
    )
    concurrency: Annotated[Count | None, Meta(description="Requests at once.")] = None
    models: Annotated[Text, Meta(description="A name or glob; others do not count.")] = "*"


class TermsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a group or a key is given; every level above it counts too."""

    models: Annotated[
        tuple[Text, ...], Meta(description="Names and globs it may use; all if not given.")
    ] = ()
    limits: tuple[LimitSettings, ...] = ()
    budgets: tuple[BudgetSettings, ...] = ()
    priority: Annotated[
        Literal["high", "normal", "low"] | Annotated[int, Meta(ge=-1000, le=1000)] | None,
        Meta(
            description="Who goes first where requests wait (`queue`), and what targets with "
            "`pass_priority` are told: high (-1), normal (0), low (1) or a number, lower first. "
            "Default: that of the level above."
        ),
    ] = None
    tags: tuple[Text, ...] = ()
    guardrails: Annotated[
        tuple[Text, ...], Meta(description="Guardrails of this file that hold for its requests.")
    ] = ()
    regions: Annotated[
        tuple[Text, ...] | None, Meta(description="Where its requests may be served.")
    ] = None
    zero_retention: Annotated[
        bool, Meta(description="Whether only providers that keep nothing are asked.")
    ] = False
    data_collection: Annotated[
        Literal["allow", "deny"],
        Meta(description="`deny`: only providers known to leave data alone are asked."),
    ] = "allow"
    when_stores_are_down: Annotated[
        Literal["open", "closed"] | None,
        Meta(description="Whether it is served while Redis cannot be reached. Default: closed."),
    ] = None


class OrganisationSettings(TermsSettings, frozen=True, kw_only=True):
    """By name."""

    blocked: bool = False


class TeamSettings(TermsSettings, frozen=True, kw_only=True):
    """By name."""

    organisation: Annotated[Text | None, Meta(description="What it belongs to.")] = None
    blocked: bool = False


class UserSettings(TermsSettings, frozen=True, kw_only=True):
    """By name."""

    organisation: Annotated[Text | None, Meta(description="What it belongs to.")] = None
    team: Annotated[Text | None, Meta(description="Of what team; in place of organisation.")] = None
    blocked: bool = False


class KeySettings(TermsSettings, frozen=True, kw_only=True):
    """A key by its id, which is no secret."""

    key: Annotated[
        SecretText | None, Meta(description="The key: env:NAME, file:PATH, or itself.")
    ] = None
    sha256: Annotated[
        Text | None, Meta(description="Its SHA-256 in hexadecimal, in place of the key.")
    ] = None
    organisation: Annotated[Text | None, Meta(description="What it belongs to.")] = None
    team: Annotated[Text | None, Meta(description="What it belongs to.")] = None
    user: Annotated[Text | None, Meta(description="What it belongs to.")] = None
    blocked: bool = False

    def __repr__(self) -> str:
        return "<settings of a key>"


class AnonymousSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Each address has these limits; an IPv6 address counts as its /64."""

    limits: Annotated[tuple[LimitSettings, ...], Meta(min_length=1)]


class AccessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Who may ask."""

    require_key: Annotated[
        bool, Meta(description="Whether every request needs a key of this gateway.")
    ] = True
    master_key: Annotated[
        SecretText | None, Meta(description="A key that may use every model without limits.")
    ] = None
    metrics_key: Annotated[
        SecretText | None,
        Meta(
            description="A key for Prometheus: it opens `/metrics` and all of `/health` and "
            "`/ready`, as `master_key` does, and nothing else. With it they are for these two "
            "keys alone, also where `require_key` is false."
        ),
    ] = None
    store: Annotated[
        Text | None,
        Meta(
            description="File of keys made by `headrace gateway keys`, of what was spent and of "
            "which ids keys were told, beside this one; without it keys are those of this file, "
            "and budgets begin anew at a start."
        ),
    ] = None
    anonymous: Annotated[
        AnonymousSettings | None,
        Meta(description="What who has no key may, where none is asked for; all if not given."),
    ] = None
    redis: Annotated[
        SecretText | None,
        Meta(
            description="Redis or Valkey that several gateways count in together, as "
            "redis://host:6379/0 or env:NAME (`pip install 'headrace[redis]'`); without it limits "
            "hold for this gateway alone, with workers for all of them on this machine."
        ),
    ] = None
    stored_ids: Annotated[
        Literal["own", "any"],
        Meta(
            description="Which ids of what providers store (`previous_response_id`, "
            "`conversation`, `item_reference`, files, containers) a key may send: `own`: "
            "those of answers that this gateway told the same key; `any`: also what others stored "
            "with the provider's key."
        ),
    ] = "own"
    organisations: dict[str, OrganisationSettings] = msgspec.field(default_factory=dict)
    teams: dict[str, TeamSettings] = msgspec.field(default_factory=dict)
    users: dict[str, UserSettings] = msgspec.field(default_factory=dict)
    keys: dict[str, KeySettings] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<settings of access with {len(self.keys)} keys>"
