"""One of several processes that share a budget: asks often, prints how many passed."""

from __future__ import annotations

import asyncio
import secrets
import sys
import time

from headrace.gateway.accounts import (
    Accounts,
    LimitExceededError,
    RedisCounters,
    connect,
)
from tests.gateway.accounts.parts import KEY, actual, budget, demand, hierarchy


async def main(url: str, asks: int, start_s: float) -> None:
    accounts = Accounts(
        RedisCounters(connect(url, timeout_s=10)),
        now_ns=time.time_ns,
        random_bytes=secrets.token_bytes,
        configured=hierarchy(organisation=budget(10, unit="requests", calendar=False)),
    )
    await accounts.start()
    caller = accounts.caller(KEY)

    async def one() -> bool:
        try:
            reservation = await accounts.reserve(caller, demand())
        except LimitExceededError:
            return False
        await asyncio.sleep(0.01)
        await reservation.settle(actual())
        return True

    # All begin together.
    await asyncio.sleep(max(0.0, start_s - time.time()))
    passed = sum(await asyncio.gather(*(one() for _ in range(asks))))
    await accounts.close()
    print(passed)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
