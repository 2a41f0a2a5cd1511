"""Whose answers are given to whom, and what a hit counts as."""

from __future__ import annotations

from headrace.gateway.accounts import (
    Budget,
    Group,
    KeyRecord,
    Limits,
    MemoryCounters,
    Parent,
    Records,
    Terms,
    secret_of,
)
from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.serving.entry import Entry
from tests.gateway.accounts.parts import KEY, OTHER_KEY, Clock, key_record, random_bytes
from tests.gateway.cache.test_hits import CHAT, STATE, settings
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import answers
from tests.gateway.upstream.scripted import served


def accounts(*keys: KeyRecord, groups: tuple[Group, ...] = ()) -> Accounts:
    return Accounts(
        MemoryCounters(),
        configured=Records(groups, keys),
        now_ns=Clock(),
        random_bytes=random_bytes(),
    )


async def test_callers_do_not_see_each_others_answers_unless_the_file_says_so() -> None:
    team = Parent("team", "red")
    other = KeyRecord(id="l", secrets=(secret_of(OTHER_KEY),), parent=team)
    async with served(answers()) as provider:
        for scope, expected in (("key", "miss"), ("team", "hit"), ("all", "hit")):
            config = settings(provider.origin, cache={"scope": scope})
            known = accounts(
                key_record(parent=team), other, groups=(Group(level="team", name="red"),)
            )
            app = gateway(config, [], accounts=known).app
            states = [
                (await ask(app, CHAT, headers={"authorization": f"Bearer {key}"})).headers[STATE]
                for key in (KEY, OTHER_KEY, KEY, OTHER_KEY)
            ]
            assert states == ["miss", expected, "hit", "hit"], scope


async def test_a_hit_counts_as_a_request_but_not_on_budgets_or_tokens() -> None:
    # A request is held for about 90,000 nano-dollars and 70 tokens, and takes 18,000 and 15.
    terms = Terms(
        limits=(Limits(rpm=4, tpm=80, concurrency=1),),
        budgets=(Budget(amount=100_000, window="1d"),),
    )
    entries: list[Entry] = []
    body = {**CHAT, "max_tokens": 25}
    headers = {"authorization": f"Bearer {KEY}"}
    async with served(answers()) as provider:
        known = accounts(key_record(terms=terms))
        app = gateway(settings(provider.origin), entries, accounts=known).app
        assert (await ask(app, body, headers=headers)).headers[STATE] == "miss"
        other = await ask(app, {**body, "seed": 1}, headers=headers)
        assert other.status == 429, "there is no room for another"
        for _ in range(3):
            told = await ask(app, body, headers=headers)
            assert (told.status, told.headers[STATE]) == (200, "hit")
        assert (await ask(app, body, headers=headers)).status == 429, "four in a minute"
        (budget,) = (
            one for one in await known.readings("key", "k") if one.meter.limit_name == "budget"
        )
        assert (budget.used, budget.held) == (18_000, 0)
    assert [one.cost_nusd for one in entries if one.cache == "hit"] == [0, 0, 0]
    last = entries[-1]
    assert (last.cache, last.outcome, last.target, last.usage) == ("", "refused", None, None)
