"""The client of a load run: a bounded pool of kept connections to one host.

`send` never raises for what network and server do: the reply says it. Connections are made when
they are needed, or before the run (`open`); the one that rested least is used first. Requests
that find all connections taken wait in the order in which they came, and their record shows it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable

from headrace.bench.client.endpoints import HttpRequest
from headrace.bench.client.exchange import ClientConnection, Exchange
from headrace.bench.client.limits import ClientLimits
from headrace.bench.client.memory_budget import MemoryBudget
from headrace.bench.client.raw import RawReply
from headrace.bench.record import Failure

# How long an address has before the next one is tried too; 250 ms is what RFC 8305 recommends.
STAGGER_S = 0.25
_NS_PER_S = 1_000_000_000


class _ConnectError(Exception):
    """A connection that failed; the text says why."""


class LoadClient:
    """A client that sends requests to the host of `origin` (a scheme, a host, a port).

    tls: for https; by default the system's certificates and no others are trusted.
    """

    def __init__(
        self,
        origin: tuple[str, str, int],
        limits: ClientLimits | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.limits = limits or ClientLimits()
        self._scheme, self._host, self._port = origin
        self._tls = tls
        self._clock_ns = clock_ns
        self._resting: list[ClientConnection] = []
        self._working: dict[Exchange, ClientConnection] = {}
        self._connecting: set[asyncio.Task[ClientConnection]] = set()
        self._waiting: deque[asyncio.Future[ClientConnection | None]] = deque()
        self._taken = 0  # places in the pool: connections, and those that are being made
        self._addresses: list[str] = []
        self._room = MemoryBudget(self.limits.max_held_bytes)

    @property
    def in_flight(self) -> int:
        """Requests that are on a connection."""
        return len(self._working)

    @property
    def waiting(self) -> int:
        """Requests that wait for a connection."""
        return len(self._waiting) + len(self._connecting)

    async def open(self, connections: int) -> Failure | None:
        """Have so many connections ready; why not, where one cannot be made."""
        wanted = min(connections, self.limits.max_connections) - self._taken
        self._taken += max(0, wanted)
        made = [asyncio.ensure_future(self._connect()) for _ in range(wanted)]
        failure = None
        for result in await asyncio.gather(*made, return_exceptions=True):
            if isinstance(result, ClientConnection):
                self._offer(result)
                continue
            self._free_place()
            if not isinstance(result, _ConnectError):
                raise result
            failure = Failure("connect", str(result))
        return failure

    async def send(self, request: HttpRequest) -> RawReply:
        """Send `request` once and wait for the end of its reply, whatever it is."""
        begun_ns = self._clock_ns()
        try:
            connection = await self._take(begun_ns)
        except _ConnectError as error:
            return self._unsent(begun_ns, Failure("connect", str(error)))
        except TimeoutError:
            waited = f"no connection was free within {self.limits.request_timeout_s:g} s"
            return self._unsent(begun_ns, Failure("timeout", waited))
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            return self._unsent(begun_ns, Failure("cancelled", "the run ended before it was sent"))
        return await self._exchange(connection, request, begun_ns)

    async def _exchange(
        self, connection: ClientConnection, request: HttpRequest, begun_ns: int
    ) -> RawReply:
        loop = asyncio.get_running_loop()
        exchange = Exchange(begun_ns, loop.create_future())
        exchange.new_connection = connection.rests_since_ns == 0
        limit_s = self.limits.request_timeout_s
        left_s = limit_s - (self._clock_ns() - begun_ns) / _NS_PER_S
        exchange.timer = loop.call_later(left_s, connection.time_out, limit_s)
        self._working[exchange] = connection
        connection.send(exchange, request.data)
        try:
            return await exchange.done
        except asyncio.CancelledError:
            connection.fail("cancelled", "the request was abandoned")
            raise
        finally:
            del self._working[exchange]
            self._offer(connection)

    def cancel_all(self) -> int:
        """End everything that is on its way as "cancelled"; how many requests that were."""
        count = len(self._working) + self.waiting
        for connection in tuple(self._working.values()):
            connection.fail("cancelled", "the run ended before the reply was complete")
        for waiter in self._waiting:
            waiter.cancel()
        self._waiting.clear()
        for task in tuple(self._connecting):
            task.cancel()
        return count

    async def close(self) -> None:
        """Cancel what is on its way and cut all connections."""
        self.cancel_all()
        for connection in tuple(self._resting):
            connection.abort()
        # Transports say that they have closed in the next round of the loop.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def _unsent(self, begun_ns: int, failure: Failure) -> RawReply:
        return RawReply(begun_ns=begun_ns, end_ns=self._clock_ns(), failure=failure)

    async def _take(self, begun_ns: int) -> ClientConnection:
        """A connection for one request."""
        oldest_ns = begun_ns - round(self.limits.keepalive_s * _NS_PER_S)
        while self._resting:
            connection = self._resting.pop()
            if connection.rests_since_ns >= oldest_ns and not connection.is_ended:
                return connection
            if not connection.closed:
                connection.abort()
            self._free_place()
        if self._taken < self.limits.max_connections:
            self._taken += 1
        else:
            found = await self._wait_for_place()
            if found is not None and not found.is_ended:
                return found
            if found is not None:
                found.abort()
        return await self._make()

    async def _wait_for_place(self) -> ClientConnection | None:
        """A connection that is free, or None: a place for a new one."""
        waiter: asyncio.Future[ClientConnection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(self.limits.request_timeout_s):
                return await waiter
        except (TimeoutError, asyncio.CancelledError):
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            elif waiter.done() and not waiter.cancelled():  # it was given, but too late
                found = waiter.result()
                if found is None:
                    self._free_place()
                else:
                    self._offer(found)
            raise

    async def _make(self) -> ClientConnection:
        """A new connection in a place that is taken already."""
        task = asyncio.ensure_future(self._connect())
        self._connecting.add(task)
        try:
            return await task
        except BaseException:
            self._free_place()
            raise
        finally:
            self._connecting.discard(task)

    def _offer(self, connection: ClientConnection) -> None:
        """A connection is done with its request, or new: the next one has it."""
        if connection.is_ended or not (connection.is_free or connection.rests_since_ns == 0):
            if not connection.closed:
                connection.abort()
            self._free_place()
            return
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        if connection.rests_since_ns == 0:
            connection.rests_since_ns = self._clock_ns()
        self._resting.append(connection)

    def _free_place(self) -> None:
        """A connection is gone; whoever waits longest may make another."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._taken -= 1

    def _lost(self, connection: ClientConnection) -> None:
        if connection in self._resting:
            self._resting.remove(connection)
            self._free_place()

    async def _connect(self) -> ClientConnection:
        at = f"{self._host}:{self._port}"
        try:
            async with asyncio.timeout(self.limits.connect_timeout_s):
                return await self._connect_any()
        except TimeoutError:
            limit_s = self.limits.connect_timeout_s
            why = "or does not speak TLS and needs http://" if self._scheme == "https" else ""
            raise _ConnectError(
                f"{at} did not accept the connection within {limit_s:g} s: it is not running, "
                f"is overloaded or is behind a firewall{why and ', '}{why}"
            ) from None
        except socket.gaierror as error:
            raise _ConnectError(
                f"the host {self._host} was not found ({error.strerror}): is it spelled right?"
            ) from None
        except ssl.SSLCertVerificationError as error:
            raise _ConnectError(
                f"the certificate of {at} is not trusted ({error.verify_message}); name a "
                "file with the certificate of its authority in SSL_CERT_FILE"
            ) from None
        except ssl.SSLError as error:
            raise _ConnectError(
                f"no TLS with {at} ({error.reason or error}): does it need http://?"
            ) from None
        except ConnectionRefusedError:
            message = f"{at} refused the connection; is the server running, and on that port?"
            raise _ConnectError(message) from None
        except OSError as error:
            raise _ConnectError(f"no connection to {at}: {error.strerror or error}") from None

    async def _connect_any(self) -> ClientConnection:
        """To the first address that answers, which is the one for all that follow.

        One that says nothing for STAGGER_S is not waited for: the next is tried beside it (RFC
        8305), so that a host whose IPv6 leads nowhere costs that much and not the whole limit.
        """
        loop = asyncio.get_running_loop()
        if not self._addresses:
            found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            self._addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        if self._scheme == "https" and self._tls is None:
            self._tls = ssl.create_default_context()
        left = deque(self._addresses)
        trying: dict[asyncio.Task[ClientConnection], str] = {}
        error: OSError = OSError("no address")
        try:
            while left or trying:
                if left:
                    address = left.popleft()
                    trying[asyncio.ensure_future(self._connect_to(address))] = address
                ended, _ = await asyncio.wait(
                    trying,
                    timeout=STAGGER_S if left else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in ended:
                    address = trying.pop(task)
                    try:
                        connection = task.result()
                    except OSError as failed:
                        # A refusal says that there is a host, and what is wrong with it.
                        if not isinstance(error, ConnectionRefusedError | ssl.SSLError):
                            error = failed
                        continue
                    self._addresses = [address]
                    return connection
            raise error
        finally:
            for task in trying:
                task.cancel()
                task.add_done_callback(_abort_made)

    async def _connect_to(self, address: str) -> ClientConnection:
        _, connection = await asyncio.get_running_loop().create_connection(
            self._new,
            address,
            self._port,
            ssl=self._tls if self._scheme == "https" else None,
            server_hostname=self._host if self._scheme == "https" else None,
        )
        return connection

    def _new(self) -> ClientConnection:
        return ClientConnection(self._clock_ns, self.limits.max_reply_bytes, self._room, self._lost)


def _abort_made(task: asyncio.Task[ClientConnection]) -> None:
    """Of an address that was too late."""
    if not task.cancelled() and task.exception() is None:
        task.result().abort()


def _is_cancelled() -> bool:
    """Whether it is the running task itself that somebody cancels."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
