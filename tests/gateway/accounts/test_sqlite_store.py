"""The store of accounts in SQLite: keys come and go, spend outlives a restart, nothing is lost."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace.gateway.accounts import (
    BlockedKeyError,
    ExpiredKeyError,
    Group,
    KeyRecord,
    LimitExceededError,
    Parent,
    Records,
    StoreBusyError,
    StoreError,
    Terms,
    UnknownKeyError,
)
from headrace.gateway.accounts.counters import Spent
from headrace.gateway.accounts.store import SpentMore
from tests.gateway.accounts.parts import (
    KEY,
    NOON_MS,
    actual,
    budget,
    demand,
    hierarchy,
    key_record,
    standing,
)
from tests.gateway.accounts.sqlite_files import Files, files_in
from tests.waiting import until

DAY_MS = 86_400_000


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[Files]:
    async with files_in(tmp_path) as files:
        yield files


async def test_a_made_key_opens_after_the_next_tick(files: Files) -> None:
    store = await files.open()
    accounts = await files.accounts(store)
    await store.put_group(Group(level="organisation", name="acme"))
    await store.put_group(Group(level="team", name="red", parent=Parent("organisation", "acme")))
    new = await store.create_key(parent=Parent("team", "red"), label="Ann's laptop")
    key = new.reveal()
    with pytest.raises(UnknownKeyError):
        accounts.caller(key)
    await accounts.tick()
    caller = accounts.caller(key)
    assert (caller.organisation, caller.team, caller.key_id) == ("acme", "red", new.key_id)
    (record,) = (await store.read()).keys
    assert (record.label, record.created_ms, record.secrets) == (
        "Ann's laptop",
        NOON_MS,
        (new.secret,),
    )


async def test_no_key_is_in_the_file(files: Files) -> None:
    store = await files.open()
    key = (await store.create_key()).reveal()
    await store.close()
    content = b"".join(path.read_bytes() for path in files.path.parent.iterdir())
    assert key.encode() not in content and key[3:].encode() not in content


async def test_rotation_with_overlap(files: Files) -> None:
    store = await files.open()
    accounts = await files.accounts(store)
    made = await store.create_key()
    old = made.reveal()
    rotated = await store.rotate_key(made.key_id, overlap_ms=60_000)
    new = rotated.reveal()
    await accounts.tick()
    assert accounts.caller(old).key_id == accounts.caller(new).key_id == made.key_id
    files.clock.step(60_000)
    with pytest.raises(ExpiredKeyError):
        accounts.caller(old)
    accounts.caller(new)
    third = (await store.rotate_key(made.key_id)).reveal()
    await accounts.tick()
    accounts.caller(third)
    for gone in (old, new):
        with pytest.raises(UnknownKeyError):
            accounts.caller(gone)


async def test_block_expire_change_and_delete(files: Files) -> None:
    store = await files.open()
    accounts = await files.accounts(store)
    await store.put_group(Group(level="user", name="ann"))
    made = await store.create_key(parent=Parent("user", "ann"))
    key, id = made.reveal(), made.key_id
    for level, name in (("key", id), ("user", "ann")):
        await store.block(level, name)  # type: ignore[arg-type]
        await accounts.tick()
        with pytest.raises(BlockedKeyError):
            accounts.caller(key)
        await store.block(level, name, blocked=False)  # type: ignore[arg-type]
        await accounts.tick()
        accounts.caller(key)
    await store.expire_key(id, at_ms=NOON_MS)
    await accounts.tick()
    with pytest.raises(ExpiredKeyError):
        accounts.caller(key)
    await store.expire_key(id, at_ms=None)
    await store.change_key(id, terms=Terms(priority=7), label="new")
    await accounts.tick()
    assert accounts.caller(key).priority == 7
    with pytest.raises(StoreError, match="belongs to it"):
        await store.delete_group("user", "ann")
    await store.delete_key(id)
    await store.delete_group("user", "ann")
    await accounts.tick()
    with pytest.raises(UnknownKeyError):
        accounts.caller(key)
    assert await store.read() == Records()


async def test_what_is_not_there_is_told(files: Files) -> None:
    store = await files.open()
    for call in (
        store.delete_key("none"),
        store.rotate_key("none"),
        store.block("key", "none"),
        store.block("team", "none"),
        store.expire_key("none", at_ms=1),
        store.delete_group("team", "none"),
    ):
        with pytest.raises(StoreError, match=r"there is no (key|team) 'none'"):
            await call
    with pytest.raises(StoreError, match="no team 'none' for it to belong to"):
        await store.create_key(parent=Parent("team", "none"))
    assert await store.read() == Records()


async def test_parents_may_be_in_the_configuration(files: Files) -> None:
    configured = hierarchy()
    groups = {(group.level, group.name) for group in configured.groups}
    store = await files.open(parent_elsewhere=lambda p: (p.level, p.name) in groups)
    accounts = await files.accounts(store, configured)
    key = (await store.create_key(parent=Parent("team", "red"))).reveal()
    await accounts.tick()
    assert accounts.caller(key).organisation == "acme"
    assert accounts.caller(KEY).user == "ann"


async def test_a_name_in_both_leaves_what_holds_now(files: Files) -> None:
    store = await files.open()
    accounts = await files.accounts(store, hierarchy())
    await store.put_group(Group(level="team", name="red"))
    await accounts.tick()
    assert accounts.caller(KEY).organisation == "acme"
    assert "twice" in (accounts.describe().problem or "")


async def test_spend_goes_on_after_a_restart(files: Files) -> None:
    terms = budget(100, "1M", calendar=True)
    store = await files.open()
    accounts = await files.accounts(store, hierarchy(team=terms, key=budget(1000)))
    for _ in range(3):
        reservation = await accounts.reserve(accounts.caller(KEY), demand(30))
        await reservation.settle(actual(25))
    assert accounts.describe().unsaved == 2
    await accounts.close()

    files.clock.step(1000)
    again = await files.accounts(await files.open(), hierarchy(team=terms, key=budget(1000)))
    assert await standing(again, "team", "red") == [(75, 0)]
    assert await standing(again, "key", "k") == [(75, 0)]
    with pytest.raises(LimitExceededError):
        await again.reserve(again.caller(KEY), demand(26))
    await (await again.reserve(again.caller(KEY), demand(25))).settle(actual(25))
    await again.close()

    files.clock.ms += 31 * DAY_MS
    later = await files.open()
    assert await later.spent(at_ms=files.clock.ms) == []


async def test_a_reservation_that_was_open_is_given_back_by_a_restart(files: Files) -> None:
    accounts = await files.accounts(await files.open(), hierarchy(key=budget(10)))
    _open = await accounts.reserve(accounts.caller(KEY), demand(10))
    await accounts.close()
    again = await files.accounts(await files.open(), hierarchy(key=budget(10)))
    await again.reserve(again.caller(KEY), demand(10))


async def test_spend_of_two_processes_is_added(files: Files) -> None:
    stores = [await files.open(), await files.open()]
    for store in stores:
        for amount in (5, 6):
            await store.add_spent([SpentMore("m", 7, amount, NOON_MS + 1)])
    assert await stores[0].spent(at_ms=NOON_MS) == [Spent("m", 7, 22)]
    await stores[0].add_spent([SpentMore("n", 1, 1, None)])
    files.clock.step(1)
    await stores[0].add_spent([SpentMore("n", 1, 1, None)])
    assert await stores[1].spent(at_ms=files.clock.ms) == [Spent("n", 1, 2)]


async def test_one_notices_what_another_changes_but_not_what_it_spends(files: Files) -> None:
    mine, other = await files.open(), await files.open()
    await mine.read()
    assert not await mine.changed()
    await other.add_spent([SpentMore("m", 7, 1, None)])
    assert not await mine.changed()
    await other.create_key()
    assert await mine.changed()
    assert len((await mine.read()).keys) == 1
    assert not await mine.changed()
    await mine.create_key()
    assert await mine.changed()


async def test_another_process_is_noticed(files: Files) -> None:
    store = await files.open()
    accounts = await files.accounts(store)
    code = (
        "import asyncio, secrets, sys, time\n"
        "from pathlib import Path\n"
        "from headrace.gateway.accounts import SqliteStore\n"
        "async def main():\n"
        "    store = await SqliteStore.open(Path(sys.argv[1]), now_ns=time.time_ns,\n"
        "                                   random_bytes=secrets.token_bytes)\n"
        "    print((await store.create_key()).reveal())\n"
        "    await store.close()\n"
        "asyncio.run(main())\n"
    )
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", code, str(files.path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    await accounts.tick()
    assert accounts.caller(done.stdout.strip()).key_id.startswith("key_")


async def test_the_queue_is_bounded_and_spend_is_kept_meanwhile(files: Files) -> None:
    store = await files.open(most_queued=2)
    accounts = await files.accounts(store, hierarchy(key=budget(10)))
    await (await accounts.reserve(accounts.caller(KEY), demand(1))).settle(actual(1))
    gate = threading.Event()
    blocked = [asyncio.ensure_future(store._run(lambda _: gate.wait(30))) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(StoreBusyError):
        await store.create_key()
    await accounts.tick()
    state = accounts.describe()
    assert state.unsaved == 1 and "waiting to be written" in (state.problem or "")
    gate.set()
    await asyncio.gather(*blocked)
    await accounts.tick()
    assert accounts.describe().unsaved == 0
    assert [spent.amount for spent in await store.spent(at_ms=NOON_MS)] == [1]


async def test_a_tick_that_is_cancelled_saves_once(files: Files) -> None:
    store = await files.open()
    accounts = await files.accounts(store, hierarchy(key=budget(10)))
    await (await accounts.reserve(accounts.caller(KEY), demand(3))).settle(actual(3))
    gate = threading.Event()
    blocked = asyncio.ensure_future(store._run(lambda _: gate.wait(30)))
    tick = asyncio.ensure_future(accounts.tick())
    await until(lambda: store._queued == 2, "a tick whose change waits behind another")
    tick.cancel()
    await asyncio.gather(tick, return_exceptions=True)
    gate.set()
    await blocked
    await accounts.tick()
    assert [spent.amount for spent in await store.spent(at_ms=NOON_MS)] == [3]


async def test_a_closed_store_says_so(files: Files) -> None:
    store = await files.open()
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.read()


def test_records_travel_as_json() -> None:
    import msgspec

    for record in (*hierarchy(team=budget(5, thresholds=(0.5,))).groups, key_record()):
        kind = KeyRecord if isinstance(record, KeyRecord) else Group
        assert msgspec.json.decode(msgspec.json.encode(record), type=kind) == record
