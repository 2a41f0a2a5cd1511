"""What came over the wire for one request, before anybody reads it: bytes and their times.

The client writes it while the run is on; `decode` makes a record of it afterwards. Times are
absolute, in nanoseconds of the client's monotonic clock.
"""

from __future__ import annotations

import msgspec

from headrace.bench.record import Failure


class RawReply(msgspec.Struct, frozen=True, kw_only=True):
    """One request's reply."""

    begun_ns: int
    """When the client took the request up; between that and sent_ns lie the wait for a connection
    and the time to make one (`new_connection`)."""
    sent_ns: int | None = None
    headers_ns: int | None = None
    end_ns: int
    status: int | None = None
    headers: dict[str, str] = {}
    """Those headers of the last reply that are read, names in lower case."""
    pieces: tuple[tuple[int, bytes], ...] = ()
    """The body as it arrived, each with its time; the body is not whole unless `complete`."""
    complete: bool = False
    failure: Failure | None = None
    """What the client itself found: no connection, a limit, an end in the middle."""
    new_connection: bool = False

    @property
    def body(self) -> bytes:
        """All of it that came."""
        return b"".join(piece for _, piece in self.pieces)
