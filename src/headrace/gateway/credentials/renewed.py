"""What is good for a while and has to be asked for again: tokens, temporary keys."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from headrace.gateway.upstream.errors import UpstreamError

logger = logging.getLogger(__name__)

# So long before its end another is asked for, so that none ends under way; of short ones a quarter.
_EARLY_S = 300.0
_EARLY_SHARE = 0.25
# After a failure: who hands them out is not asked by every request.
_PAUSE_S = 5.0
_MOST_ASK_S = 20.0

T = TypeVar("T")


class Fresh(NamedTuple, Generic[T]):
    """lasts_s: from now on."""

    value: T
    lasts_s: float


class Renewed(Generic[T]):
    """A value that is asked for by one task at a time, shortly before the old one ends.

    Until then requests go out with the old one: only where there is none they wait. A renewal that
    fails keeps what is still good. name: for the log. clock_s: monotonic.
    """

    def __init__(
        self, ask: Callable[[], Awaitable[Fresh[T]]], name: str, clock_s: Callable[[], float]
    ) -> None:
        self._ask = ask
        self._name = name
        self._clock_s = clock_s
        self._value: T | None = None
        self._good_until_s = self._renew_at_s = self._pause_until_s = float("-inf")
        self._error: UpstreamError | None = None
        self._asking: asyncio.Task[None] | None = None

    async def current(self) -> T:
        """Raises UpstreamError where there is none to be had."""
        now_s = self._clock_s()
        if now_s >= self._renew_at_s:
            if self._asking is None and now_s >= self._pause_until_s:
                self._asking = asyncio.get_running_loop().create_task(self._renew())
            if self._asking is not None and now_s >= self._good_until_s:
                # A client that goes ends its own waiting and not that of others.
                await asyncio.shield(self._asking)
        if self._value is None or self._clock_s() >= self._good_until_s:
            why = f"{self._name}: {self._error or 'it has ended'}"
            raise UpstreamError("connect", why, unsent=True)
        return self._value

    async def _renew(self) -> None:
        try:
            async with asyncio.timeout(_MOST_ASK_S):
                fresh = await self._ask()
        except UpstreamError as error:
            self._failed(str(error))
        except TimeoutError:
            self._failed(f"no answer within {_MOST_ASK_S:g} s")
        except Exception:
            # A fault of ours: requests fail by it, and the next renewal may not.
            logger.exception("%s was not renewed", self._name)
            self._failed("a fault of the gateway")
        else:
            now_s = self._clock_s()
            self._value, self._error = fresh.value, None
            self._good_until_s = now_s + fresh.lasts_s
            early_s = min(_EARLY_S, fresh.lasts_s * _EARLY_SHARE)
            self._renew_at_s = self._good_until_s - early_s
        finally:
            self._asking = None

    def _failed(self, told: str) -> None:
        self._error = UpstreamError("connect", told, unsent=True)
        self._pause_until_s = self._clock_s() + _PAUSE_S
        logger.warning("%s was not renewed: %s", self._name, told)
