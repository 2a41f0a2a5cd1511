"""Who a key is, and what holds for it on the way from its organisation."""

from __future__ import annotations

import msgspec
import pytest

from headrace.errors import ConfigError
from headrace.gateway.accounts import (
    BlockedKeyError,
    Budget,
    DataPolicy,
    ExpiredKeyError,
    Group,
    KeyRecord,
    Limits,
    Parent,
    Records,
    RefusedKeyError,
    Terms,
    UnknownKeyError,
    secret_of,
)
from headrace.gateway.accounts.roster import Roster
from tests.gateway.accounts.parts import (
    KEY,
    NOON_MS,
    OTHER_KEY,
    accounts_of,
    budget,
    hierarchy,
    key_record,
)


def test_a_caller_has_its_whole_path() -> None:
    caller = accounts_of(hierarchy()).caller(KEY)
    assert caller.path == (
        ("organisation", "acme"),
        ("team", "red"),
        ("user", "ann"),
        ("key", "k"),
    )
    assert caller.key_end == KEY[-4:]


def test_every_level_is_optional() -> None:
    assert Roster(Records((), (key_record(),))).caller(KEY, 0).path == (("key", "k"),)
    groups = (Group(level="team", name="t"),)
    roster = Roster(Records(groups, (key_record(parent=Parent("team", "t")),)))
    assert roster.caller(KEY, 0).path == (("team", "t"), ("key", "k"))


@pytest.mark.parametrize(
    "presented",
    [
        "",
        "x",
        OTHER_KEY,
        KEY + "x",
        KEY[:-1],
        KEY.upper(),
        KEY + "\0",
        "é" * 9,
        "\ud800",
        "k" * 10**6,
    ],
)
def test_every_other_key_is_unknown_and_not_told(presented: str) -> None:
    with pytest.raises(UnknownKeyError) as caught:
        accounts_of(hierarchy()).caller(presented)
    assert str(caught.value) == "the key that was sent is not a key of this gateway"


@pytest.mark.parametrize("level", ["organisation", "team", "user", "key"])
def test_a_block_at_any_level_is_told(level: str) -> None:
    records = hierarchy()
    groups = tuple(
        msgspec.structs.replace(group, blocked=group.level == level) for group in records.groups
    )
    keys = tuple(msgspec.structs.replace(key, blocked=level == "key") for key in records.keys)
    with pytest.raises(BlockedKeyError) as caught:
        Roster(Records(groups, keys)).caller(KEY, NOON_MS)
    assert caught.value.level == level
    assert isinstance(caught.value, RefusedKeyError)


def test_a_key_ends_to_the_millisecond() -> None:
    roster = Roster(Records((), (key_record(expires_ms=NOON_MS),)))
    assert roster.caller(KEY, NOON_MS - 1).key_id == "k"
    with pytest.raises(ExpiredKeyError) as caught:
        roster.caller(KEY, NOON_MS)
    assert caught.value.expired_ms == NOON_MS


def test_two_secrets_open_one_key_while_they_overlap() -> None:
    old = secret_of(KEY, expires_ms=NOON_MS)
    roster = Roster(Records((), (key_record(secrets=(secret_of(OTHER_KEY), old)),)))
    assert roster.caller(KEY, NOON_MS - 1).key_id == roster.caller(OTHER_KEY, 0).key_id
    with pytest.raises(ExpiredKeyError):
        roster.caller(KEY, NOON_MS)
    assert roster.caller(OTHER_KEY, NOON_MS).key_id == "k"


def test_what_is_nearest_holds_and_what_is_strictest() -> None:
    records = hierarchy(
        organisation=Terms(
            priority=5,
            tags=("a", "b"),
            data_policy=DataPolicy(data_collection="deny", regions=("eu", "us")),
            when_stores_are_down="open",
            models=("gpt-*",),
        ),
        team=Terms(priority=2, tags=("b", "c")),
        user=Terms(data_policy=DataPolicy(zero_retention=True, regions=("us", "asia"))),
        key=Terms(models=("*-mini", "gpt-exact")),
    )
    caller = accounts_of(records).caller(KEY)
    assert caller.priority == 2
    assert caller.tags == ("a", "b", "c")
    assert caller.when_stores_are_down == "open"
    assert caller.data_policy == DataPolicy(
        data_collection="deny", zero_retention=True, regions=("us",)
    )
    may = {model: caller.may_use(model) for model in ("gpt-mini", "gpt-exact", "gpt-x", "o-mini")}
    assert may == {"gpt-mini": True, "gpt-exact": True, "gpt-x": False, "o-mini": False}


def test_without_a_word_everything_is_allowed_and_stores_must_be_up() -> None:
    caller = accounts_of(hierarchy()).caller(KEY)
    assert caller.may_use("anything") and caller.when_stores_are_down == "closed"


def test_a_name_with_brackets_is_also_a_name() -> None:
    caller = accounts_of(hierarchy(key=Terms(models=("m[1]",)))).caller(KEY)
    assert caller.may_use("m[1]") and caller.may_use("m1") and not caller.may_use("m2")


def test_meters_go_from_the_organisation_down() -> None:
    caller = accounts_of(hierarchy(organisation=budget(1), team=budget(2), key=budget(3))).caller(
        KEY
    )
    assert [(meter.level, meter.amount) for meter in caller.meters] == [
        ("organisation", 1),
        ("team", 2),
        ("key", 3),
    ]
    assert len({meter.id for meter in caller.meters}) == 3


@pytest.mark.parametrize(
    ("records", "says"),
    [
        (Records((), (key_record(), key_record())), "twice"),
        (Records((), (key_record(), key_record(id="other"))), "same secret"),
        (Records((), (key_record(parent=Parent("team", "none")),)), "no team 'none'"),
        (Records((Group(level="team", name="t"), Group(level="team", name="t"))), "twice"),
    ],
)
def test_records_that_contradict_each_other(records: Records, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        Roster(records)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("name", ["", " a", "a ", "a|b", "a\nb", "a\0", "x" * 129])
def test_names_that_no_meter_carries(name: str) -> None:
    with pytest.raises(ConfigError, match="printable"):
        Group(level="team", name=name)
    with pytest.raises(ConfigError, match="printable"):
        KeyRecord(id=name)


def test_a_parent_is_above() -> None:
    with pytest.raises(ConfigError, match="belong"):
        Group(level="organisation", name="o", parent=Parent("team", "t"))


def test_terms_say_what_is_wrong_with_them() -> None:
    with pytest.raises(ConfigError, match="amount"):
        Budget(amount=-1, window="1d")
    with pytest.raises(ConfigError, match="rpm"):
        Limits(rpm=-1)
    with pytest.raises(ConfigError, match="belong together"):
        Budget(amount=1, window="1d", raised_to=2)
    with pytest.raises(ConfigError, match="raised_to"):
        Budget(amount=3, window="1d", raised_to=2, raised_until_ms=1)
    with pytest.raises(ConfigError, match="thresholds"):
        Budget(amount=1, window="1d", thresholds=(1.5,))
    with pytest.raises(ConfigError, match="two of nusd per 1d"):
        Terms(budgets=(Budget(amount=1, window="1d"), Budget(amount=2, window="1d")))
    with pytest.raises(ConfigError, match="two for model"):
        Terms(limits=(Limits(rpm=1), Limits(tpm=1)))


def test_a_bad_change_of_the_configuration_leaves_the_old_one() -> None:
    accounts = accounts_of(hierarchy())
    with pytest.raises(ConfigError):
        accounts.reconfigure(Records((), (key_record(parent=Parent("team", "gone")),)))
    assert accounts.caller(KEY).team == "red"
    accounts.reconfigure(Records((), (key_record(),)))
    assert accounts.caller(KEY).team is None
