"""What came over the wire for one request, before anybody reads it: bytes and their times.

The client writes it while the run is on; `decode` makes a record of it afterwards. Times are
absolute, in nanoseconds of the client's monotonic clock.
"""

from __future__ import annotations

import msgspec

from headrace.bench.record import Failure


class RawReply(msgspec.Struct, frozen=True, kw_only=True):
    """One request's reply.

    begun_ns: when the client took the request up; between that and sent_ns lie the wait for a
    connection and the time to make one (`new_connection`). pieces: the body as it arrived, each
    with its time; the body is not whole unless `complete`. failure: what the client itself found:
    no connection, a limit, an end in the middle. headers: of the last reply those that are read,
    names in lower case.
    """

    begun_ns: int
    sent_ns: int | None = None
    headers_ns: int | None = None
    end_ns: int
    status: int | None = None
    headers: dict[str, str] = {}
    pieces: tuple[tuple[int, bytes], ...] = ()
    complete: bool = False
    failure: Failure | None = None
    new_connection: bool = False

    @property
    def body(self) -> bytes:
        """All of it that came."""
        return b"".join(piece for _, piece in self.pieces)
