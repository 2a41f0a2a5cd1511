"""The accounts of the file: groups, keys, and where they are counted and stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from headrace.errors import ConfigError
from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.alert import Alert
from headrace.gateway.accounts.caller import ADMIN, MASTER
from headrace.gateway.accounts.counters import Counters
from headrace.gateway.accounts.edit import priority_of
from headrace.gateway.accounts.key import RandomBytes, Secret, digest_of, secret_of
from headrace.gateway.accounts.memory_counters import MemoryCounters
from headrace.gateway.accounts.outage import OnOutage
from headrace.gateway.accounts.records import Group, KeyRecord, Parent, Records
from headrace.gateway.accounts.roster import Roster
from headrace.gateway.accounts.sqlite_store import SqliteStore
from headrace.gateway.accounts.terms import Budget, DataPolicy, Limits, Terms
from headrace.gateway.guests import ANONYMOUS
from headrace.gateway.settings.access import AccessSettings, KeySettings, TermsSettings
from headrace.gateway.settings.secret import MIN_KEY_CHARS, Sources, is_plain, read_secret
from headrace.protocol.neutral.dollars import NUSD_PER_USD

_OWN_NAMES = frozenset((MASTER.key_id, ADMIN.key_id, ANONYMOUS))


def records_of(settings: AccessSettings, sources: Sources) -> Records:
    """Groups and keys as accounts keep them. Raises ConfigError, with no key in it."""
    groups = groups_of(settings)
    keys = tuple(_key(name, one, sources) for name, one in settings.keys.items())
    if settings.metrics_key is not None:
        _check_metrics_key(settings.metrics_key, settings.master_key, keys, sources)
    return Records(groups=groups, keys=keys)


def records_without_secrets(settings: AccessSettings) -> Records:
    """As `records_of`, for keys without secrets. Raises ConfigError."""
    keys = tuple(_record(name, one, ()) for name, one in settings.keys.items())
    return Records(groups=groups_of(settings), keys=keys)


def groups_of(settings: AccessSettings) -> tuple[Group, ...]:
    """Organisations, teams and users, which no secret is needed for. Raises ConfigError."""
    groups: list[Group] = []
    for name, organisation in settings.organisations.items():
        terms = _terms(organisation)
        groups.append(
            Group(level="organisation", name=name, terms=terms, blocked=organisation.blocked)
        )
    for name, team in settings.teams.items():
        parent = _parent(f"access.teams.{name}", organisation=team.organisation)
        groups.append(
            Group(level="team", name=name, parent=parent, terms=_terms(team), blocked=team.blocked)
        )
    for name, user in settings.users.items():
        parent = _parent(f"access.users.{name}", organisation=user.organisation, team=user.team)
        groups.append(
            Group(level="user", name=name, parent=parent, terms=_terms(user), blocked=user.blocked)
        )
    return tuple(groups)


def check_access(settings: AccessSettings, sources: Sources) -> None:
    """Raises ConfigError or AccountsError for what could not be started with; opens no store."""
    configured = records_of(settings, sources)
    if settings.store is None:  # else groups may be there
        Roster(configured)


def access_warnings(settings: AccessSettings, sources: Sources) -> list[str]:
    """Settings that are valid but probably not intended. Raises ConfigError for a secret that is
    not there."""
    given = {f"access.keys.{name}.key": one.key for name, one in settings.keys.items()}
    given["access.master_key"] = settings.master_key
    given["access.metrics_key"] = settings.metrics_key
    warnings = [
        f"{field}: the secret is written into the file; write env:NAME or file:PATH instead"
        for field, key in given.items()
        if key is not None and is_plain(key)
    ]
    for field, key in given.items():
        length = MIN_KEY_CHARS if key is None else len(read_secret(key, sources, field).reveal())
        if length < MIN_KEY_CHARS:
            warnings.append(
                f"{field} is too short ({length} of {MIN_KEY_CHARS} characters) and can be "
                "guessed; `openssl rand -hex 24` makes one"
            )
    if admits_nobody(settings):
        warnings.append(
            "access: every request needs a key and there are no keys; add keys or a store, or "
            "write require_key: false"
        )
    return warnings


def admits_nobody(settings: AccessSettings) -> bool:
    """Whether every request is refused: a key is required, and there is none."""
    known = settings.keys or settings.master_key or settings.store
    return settings.require_key and not known


def _check_metrics_key(
    given: str, master: str | None, keys: Sequence[KeyRecord], sources: Sources
) -> None:
    """Whoever holds it must not be able to ask a model with it. Raises ConfigError."""
    metrics = read_secret(given, sources, "access.metrics_key")
    digest = digest_of(metrics.reveal())
    same = [
        f"access.keys.{key.id}"
        for key in keys
        if any(bytes.fromhex(secret.digest) == digest for secret in key.secrets)
    ]
    if master is not None and read_secret(master, sources, "access.master_key") == metrics:
        same.append("access.master_key")
    if same:
        raise ConfigError(
            f"access.metrics_key: {same[0]} is the same key and may use models; give another"
        )


def _key(name: str, settings: KeySettings, sources: Sources) -> KeyRecord:
    where = f"access.keys.{name}"
    if (settings.key is None) == (settings.sha256 is None):
        raise ConfigError(f"{where}: give either key or sha256")
    try:
        secret = (
            Secret(digest=settings.sha256)
            if settings.sha256 is not None
            else secret_of(read_secret(settings.key or "", sources).reveal())
        )
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    return _record(name, settings, (secret,))


def _record(name: str, settings: KeySettings, secrets: tuple[Secret, ...]) -> KeyRecord:
    if name in _OWN_NAMES:
        raise ConfigError(
            f"access.keys.{name}: ledgers, caches and limits know the gateway's own callers by "
            "this name; choose another"
        )
    parent = _parent(
        f"access.keys.{name}",
        organisation=settings.organisation, team=settings.team, user=settings.user,
    )  # fmt: skip
    return KeyRecord(
        id=name, secrets=secrets, parent=parent, terms=_terms(settings), blocked=settings.blocked
    )


def _parent(
    where: str,
    *,
    organisation: str | None = None,
    team: str | None = None,
    user: str | None = None,
) -> Parent | None:
    named = [one for one in (organisation, team, user) if one is not None]
    if len(named) > 1:
        raise ConfigError(
            f"{where}: it belongs to only one group; the groups above that one are "
            "named where it is defined"
        )
    if user is not None:
        return Parent("user", user)
    if team is not None:
        return Parent("team", team)
    return None if organisation is None else Parent("organisation", organisation)


def _terms(settings: TermsSettings) -> Terms:
    return Terms(
        models=settings.models,
        limits=tuple(
            Limits(rpm=limit.rpm, tpm=limit.tpm, concurrency=limit.concurrency, model=limit.models)
            for limit in settings.limits
        ),
        budgets=tuple(
            Budget(
                amount=round(budget.usd * NUSD_PER_USD),
                window=budget.per,
                calendar=budget.calendar,
                model=budget.models,
                thresholds=budget.alerts,
                unknown_price=budget.unknown_price,
            )
            for budget in settings.budgets
        ),
        priority=priority_of(settings.priority),
        tags=settings.tags,
        guardrails=settings.guardrails,
        data_policy=DataPolicy(
            data_collection=settings.data_collection,
            zero_retention=settings.zero_retention,
            regions=settings.regions,
        ),
        when_stores_are_down=settings.when_stores_are_down,
    )


async def accounts_of(
    settings: AccessSettings,
    sources: Sources,
    *,
    now_ns: Callable[[], int],
    random_bytes: RandomBytes,
    on_alert: Callable[[Alert], None] | None,
    on_outage: OnOutage | None = None,
    counters: Counters | None = None,
    saves: bool = True,
) -> Accounts:
    """Opened and started. on_outage: hears when counters in Redis are lost, and when they are back.
    counters: in place of the file's. saves: see Accounts. Raises ConfigError, StoreError."""
    configured = records_of(settings, sources)
    store = None
    if settings.store is not None:
        store = await open_store(
            sources.folder / settings.store, configured.groups, now_ns=now_ns,
            random_bytes=random_bytes,
        )  # fmt: skip
    accounts = Accounts(
        counters or _counters(settings, sources, on_outage),
        now_ns=now_ns,
        random_bytes=random_bytes,
        configured=configured,
        store=store,
        on_alert=on_alert,
        saves=saves,
    )
    await accounts.start()
    return accounts


async def open_store(
    path: Path,
    groups: Sequence[Group],
    *,
    now_ns: Callable[[], int],
    random_bytes: RandomBytes,
) -> SqliteStore:
    """The file of keys. groups: of the configuration, which its keys may belong to."""
    there = {Parent(group.level, group.name) for group in groups}
    return await SqliteStore.open(
        path, now_ns=now_ns, random_bytes=random_bytes, parent_elsewhere=there.__contains__
    )


def _counters(settings: AccessSettings, sources: Sources, on_outage: OnOutage | None) -> Counters:
    if settings.redis is None:
        return MemoryCounters()
    from headrace.gateway.accounts.redis_counters import RedisCounters
    from headrace.gateway.accounts.redis_link import connect

    url = read_secret(settings.redis, sources, "access.redis").reveal()
    return RedisCounters(connect(url), on_outage=on_outage)
