"""Values that expire and are renewed: tokens, temporary keys."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from headrace.gateway.upstream.errors import UpstreamError

logger = logging.getLogger(__name__)

# Renewed this long before the end, so that none expires in use; short-lived ones at a quarter.
_EARLY_S = 300.0
_EARLY_SHARE = 0.25
# The pause after a failure, so that not every request asks for a renewal.
_PAUSE_S = 5.0
_MOST_ASK_S = 20.0

T = TypeVar("T")


class Fresh(NamedTuple, Generic[T]):
    """A value that is valid for `lasts_s` seconds from now."""

    value: T
    lasts_s: float


class Renewed(Generic[T]):
    """A value that one task at a time renews, shortly before it expires.

    Until then requests use the old one; they wait only if there is none. A renewal that fails keeps
    a value that is still valid. `name` appears in the log; `clock_s` is monotonic.
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
        """The current value. Raises UpstreamError if there is no valid one."""
        now_s = self._clock_s()
        if now_s >= self._renew_at_s:
            if self._asking is None and now_s >= self._pause_until_s:
                self._asking = asyncio.get_running_loop().create_task(self._renew())
            if self._asking is not None and now_s >= self._good_until_s:
                # A client that leaves ends its own wait and not that of others.
                await asyncio.shield(self._asking)
        if self._value is None or self._clock_s() >= self._good_until_s:
            why = f"{self._name}: {self._error or 'it has expired'}"
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
            # A fault of the gateway: requests fail now, and the next renewal may not.
            logger.exception("%s could not be renewed", self._name)
            self._failed("a fault of the gateway")
        else:
            now_s = self._clock_s()
            self._value, self._error = fresh.value, None
            self._good_until_s = now_s + fresh.lasts_s
            early_s = min(_EARLY_S, fresh.lasts_s * _EARLY_SHARE)
            self._renew_at_s = self._good_until_s - early_s
        finally:
            self._asking = None

    def _failed(self, message: str) -> None:
        self._error = UpstreamError("connect", message, unsent=True)
        self._pause_until_s = self._clock_s() + _PAUSE_S
        logger.warning("%s could not be renewed: %s", self._name, message)
