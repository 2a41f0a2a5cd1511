"""A request to the admin API, as its operations see it."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from starlette.requests import Request

from headrace.config.load import nearest
from headrace.errors import shown
from headrace.gateway.admin.errors import AdminError
from headrace.gateway.admin.gatehouse import Gatehouse
from headrace.gateway.ledger.errors import LedgerError
from headrace.gateway.ledger.schema import reading

S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")

_MOST_BODY_BYTES = 32 * 2**20
_MOST_TEXT_CHARACTERS = 256
# Of four-digit years.
_MOST_SECONDS = 253_402_300_800
# Each takes a thread and a core while it lasts.
_READS_AT_ONCE = 2
# A ledger of some millions of lines is added up in a few seconds.
_MOST_READ_S = 30.0
_STEPS_BETWEEN_LOOKS = 100_000
# Streams that are open at once: pages of some dozen administrators.
MOST_STREAMS = 64


@dataclass(kw_only=True, slots=True)
class Shared:
    """State that all requests share."""

    house: Gatehouse
    wall_s: Callable[[], float]
    """Unix time."""
    new_id: Callable[[], str]
    """Makes ids for requests of the playground."""
    ending: asyncio.Event
    """Set when the gateway ends, so that streams end."""
    reads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_READS_AT_ONCE))
    streams: int = 0


class Call:
    """One request. `text`, `number` and `choice` read its query and raise AdminError 400 for a bad
    one."""

    def __init__(self, http: Request, shared: Shared) -> None:
        self.http = http
        self.shared = shared
        self.house = shared.house

    def check_query(self, known: Collection[str]) -> None:
        """Refuse unknown parameters, and those that are given twice."""
        given = [name for name, _ in self.http.query_params.multi_items()]
        for name in given:
            if name not in known:
                meant = nearest(name, known) or f"; there are {', '.join(known) or 'none'}"
                raise _bad(f"{shown(name)} is not a parameter of this path{meant}")
            if given.count(name) > 1:
                raise _bad(f"{name} is given twice; give it once")

    def text(self, name: str) -> str | None:
        """The value of a parameter; None if it is missing or empty."""
        value = self.http.query_params.get(name) or None
        if value is not None and len(value) > _MOST_TEXT_CHARACTERS:
            raise _bad(
                f"{name}: {len(value)} characters given, at most {_MOST_TEXT_CHARACTERS} are "
                "allowed"
            )
        return value

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number within limits."""
        value = self.text(name)
        if value is None:
            return default
        if not value.isascii() or not value.isdigit() or not least <= int(value) <= most:
            raise _bad(f"{name}: {shown(value)} is not a whole number from {least} to {most:,}")
        return int(value)

    def seconds(self, name: str) -> float | None:
        """A Unix time."""
        value = self.text(name)
        try:
            found = None if value is None else float(value)
        except ValueError:
            found = math.nan
        if found is not None and not 0 <= found <= _MOST_SECONDS:
            raise _bad(f"{name}: {shown(value)} is not a time in seconds since 1970")
        return found

    def choice(self, name: str, default: str | None, choices: Collection[str]) -> str | None:
        """The value of a parameter that is one of some words."""
        value = self.text(name) or default
        if value is not None and value not in choices:
            raise _bad(f"{name}: {shown(value)} is not one of {', '.join(choices)}")
        return value

    def path(self, name: str) -> str:
        """A part of the path."""
        found: str = self.http.path_params[name]
        return found

    async def body(self, of: type[S]) -> S:
        """The JSON body. Raises AdminError 400, 413 and 415; ClientDisconnect."""
        kind = self.http.headers.get("content-type", "").partition(";")[0].strip().casefold()
        if kind != "application/json":
            raise AdminError(415, "the content type must be application/json", "content_type")
        raw = bytearray()
        async for piece in self.http.stream():
            raw += piece
            if len(raw) > _MOST_BODY_BYTES:
                raise AdminError(
                    413, f"the body has more than {_MOST_BODY_BYTES:,} bytes", "too_large"
                )
        try:
            return msgspec.json.decode(bytes(raw), type=of)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise _bad(f"the body is not valid: {error}{_known(of, error)}") from error

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Ask the ledger, in a thread. Raises AdminError 409 where there is none, 503 where it
        cannot be read now or takes too long."""
        path = self.house.ledger_path
        if path is None:
            raise AdminError(
                409, "no ledger is kept: write `ledger: {path: ledger.sqlite3}` into the "
                    "gateway's file and restart it", "no_ledger",
            )  # fmt: skip

        def do() -> T:
            until_s = time.monotonic() + _MOST_READ_S
            with reading(path) as connection:
                connection.set_progress_handler(
                    lambda: time.monotonic() > until_s, _STEPS_BETWEEN_LOOKS
                )
                return work(connection)

        async with self.shared.reads:
            try:
                return await asyncio.to_thread(do)
            except LedgerError as error:
                message = str(error)
                if "interrupted" in message:
                    message = (
                        f"reading the ledger took longer than {_MOST_READ_S:.0f} s; ask for a "
                        "shorter time"
                    )
                raise AdminError(503, message, "ledger") from error


def _known(of: type[msgspec.Struct], error: Exception) -> str:
    """The fields that exist, for an error about an unknown field at the top."""
    said = str(error)
    if "unknown field" not in said or " - at " in said:
        return ""
    names = [one.encode_name for one in msgspec.structs.fields(of)]
    given = said.partition("`")[2].partition("`")[0]
    return f"{nearest(given, names)}; there are {', '.join(names)}"


def _bad(message: str) -> AdminError:
    return AdminError(400, message, "bad_request")
