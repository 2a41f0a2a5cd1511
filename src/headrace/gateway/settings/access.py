"""Keys, the groups they belong to, and their limits and budgets."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.gateway.settings.provider import SecretText, Text

WindowName = Literal["1m", "5m", "1h", "1d", "1w", "1M", "1Y", "total"]
Count = Annotated[int, Meta(ge=0, le=2**60)]


class BudgetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A budget: the most that may be spent per window. The cost that running requests may yet incur
    is reserved in it."""

    usd: Annotated[float, Meta(ge=0, le=1e9, description="US dollars.")]
    per: Annotated[
        WindowName,
        Meta(description="Window: minute, 5 minutes, hour, day, week, month, year, or all time."),
    ]
    calendar: Annotated[
        bool, Meta(description="Whether windows are those of the UTC calendar; rolling otherwise.")
    ] = False
    models: Annotated[Text, Meta(description="A name or glob; other models do not count.")] = "*"
    unknown_price: Annotated[
        Literal["refuse", "allow"],
        Meta(description="What happens to requests whose price is unknown."),
    ] = "refuse"
    alerts: Annotated[
        tuple[Annotated[float, Meta(gt=0, le=1)], ...],
        Meta(description="Shares of the budget at which an alert is sent, once per window."),
    ] = (0.5, 0.85, 0.95, 1.0)


class LimitSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Rate limits: requests and tokens in any 60 seconds, and requests at the same time."""

    rpm: Annotated[Count | None, Meta(description="Requests in any minute.")] = None
    tpm: Annotated[Count | None, Meta(description="Tokens in any minute, prompts and answers.")] = (
        None
    )
    concurrency: Annotated[Count | None, Meta(description="Requests at the same time.")] = None
    models: Annotated[Text, Meta(description="A name or glob; other models do not count.")] = "*"


class TermsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The limits and rights of a group or a key; those of every level above it apply too."""

    models: Annotated[
        tuple[Text, ...], Meta(description="Names and globs of allowed models; all if omitted.")
    ] = ()
    limits: tuple[LimitSettings, ...] = ()
    budgets: tuple[BudgetSettings, ...] = ()
    priority: Annotated[
        Literal["high", "normal", "low"] | Annotated[int, Meta(ge=-1000, le=1000)] | None,
        Meta(
            description="Which requests go first when they wait (`queue`), and what is sent to "
            "targets "
            "with `pass_priority`: high (-1), normal (0), low (1) or a number; lower goes "
            "first. Default: that of the level above."
        ),
    ] = None
    tags: tuple[Text, ...] = ()
    guardrails: Annotated[
        tuple[Text, ...], Meta(description="Guardrails of this file that apply to its requests.")
    ] = ()
    regions: Annotated[
        tuple[Text, ...] | None, Meta(description="Regions in which its requests may be served.")
    ] = None
    zero_retention: Annotated[
        bool, Meta(description="Whether only providers that retain nothing are used.")
    ] = False
    data_collection: Annotated[
        Literal["allow", "deny"],
        Meta(description="`deny`: only providers known not to collect data are used."),
    ] = "allow"
    when_stores_are_down: Annotated[
        Literal["open", "closed"] | None,
        Meta(
            description="Whether requests are served while Redis cannot be reached. Default: "
            "closed."
        ),
    ] = None


class OrganisationSettings(TermsSettings, frozen=True, kw_only=True):
    """An organisation, by name."""

    blocked: bool = False


class TeamSettings(TermsSettings, frozen=True, kw_only=True):
    """A team, by name."""

    organisation: Annotated[Text | None, Meta(description="The organisation it belongs to.")] = None
    blocked: bool = False


class UserSettings(TermsSettings, frozen=True, kw_only=True):
    """A user, by name."""

    organisation: Annotated[Text | None, Meta(description="The organisation it belongs to.")] = None
    team: Annotated[
        Text | None, Meta(description="The team it belongs to, instead of an organisation.")
    ] = None
    blocked: bool = False


class KeySettings(TermsSettings, frozen=True, kw_only=True):
    """A key, by its id, which is not secret."""

    key: Annotated[
        SecretText | None, Meta(description="The key: env:NAME, file:PATH, or the key itself.")
    ] = None
    sha256: Annotated[
        Text | None, Meta(description="The key's SHA-256 in hexadecimal, instead of the key.")
    ] = None
    organisation: Annotated[Text | None, Meta(description="The organisation it belongs to.")] = None
    team: Annotated[
        Text | None, Meta(description="The team it belongs to, instead of an organisation.")
    ] = None
    user: Annotated[
        Text | None, Meta(description="The user it belongs to, instead of an organisation or team.")
    ] = None
    blocked: bool = False

    def __repr__(self) -> str:
        return "<settings of a key>"


class AnonymousSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for callers without a key, per address; an IPv6 address counts as its /64."""

    limits: Annotated[tuple[LimitSettings, ...], Meta(min_length=1)]


class AccessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Keys, and the limits and budgets of those who hold them."""

    require_key: Annotated[
        bool, Meta(description="Whether every request needs a key of this gateway.")
    ] = True
    master_key: Annotated[
        SecretText | None,
        Meta(
            description="A key that may use every model without limits; at least 16 characters "
            "where other machines reach `listen.host`."
        ),
    ] = None
    metrics_key: Annotated[
        SecretText | None,
        Meta(
            description="A key for Prometheus: it opens `/metrics` and the full `/health` and "
            "`/ready`, "
            "as `master_key` does, and nothing else. When it is set, these are open to "
            "those two keys alone, even if `require_key` is false."
        ),
    ] = None
    store: Annotated[
        Text | None,
        Meta(
            description="File, relative to this one, for keys made by `headrace gateway keys`, "
            "spending, and the ids of stored objects that each key owns. Without it there "
            "are only the keys of this file, and budgets start from zero at each start."
        ),
    ] = None
    anonymous: Annotated[
        AnonymousSettings | None,
        Meta(
            description="What callers without a key may do where no key is required; everything "
            "if omitted."
        ),
    ] = None
    redis: Annotated[
        SecretText | None,
        Meta(
            description="Redis or Valkey in which several gateways count together, as "
            "redis://host:6379/0 or env:NAME (`pip install 'headrace[redis]'`). Without it "
            "limits hold for this gateway alone, counted across all its workers on this "
            "machine."
        ),
    ] = None
    stored_ids: Annotated[
        Literal["own", "any"],
        Meta(
            description="Which ids of objects stored at providers (`previous_response_id`, "
            "`conversation`, `item_reference`, files, containers) a key may send. `own`: "
            "those from answers that this gateway gave to the same key; `any`: also those "
            "that others stored with the provider's key."
        ),
    ] = "own"
    organisations: dict[str, OrganisationSettings] = msgspec.field(default_factory=dict)
    teams: dict[str, TeamSettings] = msgspec.field(default_factory=dict)
    users: dict[str, UserSettings] = msgspec.field(default_factory=dict)
    keys: dict[str, KeySettings] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<settings of access with {len(self.keys)} keys>"
