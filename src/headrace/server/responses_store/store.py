"""Stored responses for the event loop: every use of the database is made by one thread.

An owner is the key that a request came with, known by a hash with the database's own salt: no key
is written anywhere. Without keys there is one owner.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TypeVar

from headrace.config.server_settings import ServerConfig
from headrace.server.responses_store.database import open_database, salt_of
from headrace.server.responses_store.rows import Bounds, Conversation, Items, ResponseRows, Turn

logger = logging.getLogger(__name__)

T = TypeVar("T")
U = TypeVar("U")

_S_PER_DAY = 86_400
_OWNER_BYTES = 16
_MOST_OWNER_KEY_BYTES = 64


class ResponsesStore:
    """The store of a server. Raises ConfigError, when made, for a file that cannot be used.

    A database that fails later loses what was to be written, is reported in the log, and answers
    as if it had nothing: what is generated goes out all the same.
    """

    def __init__(self, config: ServerConfig, wall_s: Callable[[], float]) -> None:
        connection = open_database(config.responses_store)
        self._salt = salt_of(connection)
        bounds = Bounds(
            config.max_stored_responses,
            config.max_stored_response_bytes,
            config.stored_response_days * _S_PER_DAY,
        )
        self._name = config.responses_store or "stored responses"
        self._rows = ResponseRows(connection, bounds, wall_s)
        self._thread = ThreadPoolExecutor(1, "headrace-responses")

    def owner(self, key: bytes) -> bytes:
        """What stands for a key's digest in the database; b"" where no key is needed."""
        salt = self._salt[:_MOST_OWNER_KEY_BYTES]
        return hashlib.blake2b(key, key=salt, digest_size=_OWNER_BYTES).digest() if key else b""

    async def add(self, turn: Turn) -> bool:
        """Store a response; False where it was not stored, and the log says why."""
        is_stored = await self._done(partial(self._rows.add, turn), default=None)
        if is_stored is False:
            logger.warning(
                "%s: %s was not stored: with the turns that are being continued it has more than "
                "--max-stored-response-bytes",
                self._name,
                turn.id,
            )
        return is_stored is True

    async def body(self, id: str, owner: bytes) -> bytes | None:
        """The response object; None where the owner has none of this id."""
        return await self._done(partial(self._rows.body, id, owner), default=None)

    async def hold(self, id: str, owner: bytes, most_bytes: int) -> Conversation | None:
        """As ResponseRows.hold."""
        work = partial(self._rows.hold, id, owner, most_bytes)
        future = asyncio.wrap_future(self._thread.submit(work))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(self._release_held)
            raise
        except sqlite3.Error as error:
            self._failed(error)
            return None

    async def input_items(self, id: str, owner: bytes, most_bytes: int) -> Items | None:
        """As ResponseRows.input_items."""
        work = partial(self._rows.input_items, id, owner, most_bytes)
        return await self._done(work, default=None)

    async def delete(self, id: str, owner: bytes) -> bool:
        """Whether the owner had a response of this id, which is not found from now on."""
        return await self._done(partial(self._rows.delete, id, owner), default=False)

    def release(self, number: int) -> None:
        """As ResponseRows.release; does not wait for it."""
        with suppress(RuntimeError):  # the server has ended
            self._thread.submit(self._released, number)

    def close(self) -> None:
        """End the thread when all it was given is done, and close the database."""
        with suppress(RuntimeError):  # closed before
            self._thread.submit(self._rows.close)
        self._thread.shutdown()

    async def _done(self, work: Callable[[], T], *, default: U) -> T | U:
        try:
            return await asyncio.wrap_future(self._thread.submit(work))
        except sqlite3.Error as error:
            self._failed(error)
            return default

    def _released(self, number: int) -> None:
        try:
            self._rows.release(number)
        except sqlite3.Error as error:
            self._failed(error)

    def _release_held(self, future: asyncio.Future[Conversation | None]) -> None:
        """Of a hold that nobody waits for any more."""
        if future.cancelled() or future.exception() is not None:
            return
        held = future.result()
        if held is not None:
            self.release(held.number)

    def _failed(self, error: sqlite3.Error) -> None:
        logger.error("%s: the database failed: %s", self._name, error)
