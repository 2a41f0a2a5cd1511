"""No key in any text: representations, errors, logs."""

from __future__ import annotations

import logging
import pickle
import traceback
from pathlib import Path

import msgspec
import pytest

from headrace.gateway.accounts import (
    AccountsError,
    KeyRecord,
    Records,
    SqliteStore,
    make_key,
    secret_of,
)
from headrace.gateway.accounts.roster import Roster
from tests.gateway.accounts.parts import Clock, accounts_of, budget, demand, random_bytes


async def test_a_key_is_in_no_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    clock = Clock()
    store = await SqliteStore.open(tmp_path / "a.db", now_ns=clock, random_bytes=random_bytes(3))
    accounts = accounts_of(Records(), clock, store=store)
    await accounts.start()
    new = await store.create_key(terms=budget(1))
    texts = [repr(new)]
    keys = [new.reveal()]
    rotated = await store.rotate_key(new.key_id, overlap_ms=1000)
    texts.append(repr(rotated))
    keys.append(rotated.reveal())
    await accounts.tick()
    caller = accounts.caller(keys[0])
    reservation = await accounts.reserve(caller, demand(1))
    records = await store.read()
    texts += map(repr, (caller, reservation, accounts, store, records, accounts.roster, new))
    texts.append(msgspec.json.encode(records).decode())
    texts.append(str(accounts.describe()))
    for wrong in (*(key[:-1] for key in keys), keys[0] + "x"):
        with pytest.raises(AccountsError) as caught:
            accounts.caller(wrong)
        texts += _told(caught.value)
    with pytest.raises(AccountsError) as caught:
        await accounts.reserve(caller, demand(1))
    texts += _told(caught.value)
    clock.step(1000)
    with pytest.raises(AccountsError) as caught:
        accounts.caller(keys[0])
    texts += _told(caught.value)
    await store.block("key", new.key_id)
    await accounts.tick()
    with pytest.raises(AccountsError) as caught:
        accounts.caller(keys[1])
    texts += _told(caught.value)
    await accounts.close()
    texts.append(caplog.text)
    for key in keys:
        hidden = key[3:-4]
        assert not any(hidden in text for text in texts)


def _told(error: BaseException) -> list[str]:
    lines = traceback.format_exception(error)
    return [str(error), repr(error), repr(error.__dict__), repr(error.args), *lines]


def test_a_new_key_does_not_travel() -> None:
    new = make_key(random_bytes())
    record = KeyRecord(id="k", secrets=(secret_of(new),))
    assert new.encode() not in pickle.dumps(record)
    assert new not in repr(Roster(Records((), (record,))))
