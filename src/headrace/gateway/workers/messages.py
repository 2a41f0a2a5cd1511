"""What a worker and its parent tell and ask each other."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.gateway.accounts.alert import Alert
from headrace.gateway.accounts.caller import Caller
from headrace.gateway.accounts.counters import (
    Counted,
    Known,
    Mark,
    Reading,
    Shortage,
    Wanted,
)
from headrace.gateway.accounts.meter import Meter
from headrace.gateway.admin.gatehouse import Explained
from headrace.gateway.routing.variants import TakenOut
from headrace.gateway.serving.entry import Entry
from headrace.gateway.targets.auth import RefusedKey
from headrace.gateway.targets.health import State
from headrace.gateway.telemetry.standing import Standing


class _Message(msgspec.Struct, frozen=True, tag=True, array_like=True):
    pass


class Start(_Message, frozen=True):
    """The first word of the parent. text: of the file, which lies at `path`. host, port: of the
    socket. number: of the worker among `workers`, from 0."""

    path: str
    text: str
    host: str
    port: int
    number: int
    workers: int


class ReservesAs(_Message, frozen=True):
    """What the ids of a worker's reservations begin with; told before there is one."""

    owner: str


class Serves(_Message, frozen=True):
    """A worker answers requests from now on."""


class Prepare(_Message, frozen=True):
    """Make a gateway of this text and keep it ready; answered by Done."""

    text: str


class Take(_Message, frozen=True):
    """What was prepared answers from now on; answered by Done."""


class Forget(_Message, frozen=True):
    """What was prepared is not wanted."""


class Drain(_Message, frozen=True):
    """Take no more requests, answer those under way, end."""


class Cut(_Message, frozen=True):
    """End at once, whatever is under way."""


class Done(_Message, frozen=True):
    """problem: what stood against it, "" if it was done."""

    problem: str = ""


class Reserve(_Message, frozen=True):
    """See Counters.reserve; answered by Reserved."""

    id: str
    wanted: tuple[Wanted, ...]
    at_ms: int


class Reserved(_Message, frozen=True):
    """short: empty if all was taken."""

    short: tuple[Shortage, ...]


class End(_Message, frozen=True):
    """See Counters.end; answered by Ended. counted: empty to give back what may have been taken."""

    id: str
    counted: tuple[Counted, ...]
    reserved_ms: int
    at_ms: int


class Ended(_Message, frozen=True):
    """See counters.Ended."""

    first: bool
    used: tuple[int, ...]


class SpentHere(_Message, frozen=True):
    """What a worker counted by itself while the parent did not answer."""

    counted: tuple[Counted, ...]
    at_ms: int


class First(_Message, frozen=True):
    """See Counters.first; answered by IsFirst."""

    mark: str
    until_ms: int
    at_ms: int


class IsFirst(_Message, frozen=True):
    """Whether nobody asked for the mark before."""

    first: bool


class Remember(_Message, frozen=True):
    """See Counters.remember; answered by Done."""

    marks: tuple[Mark, ...]
    at_ms: int


class Remembers(_Message, frozen=True):
    """See Counters.remembers; answered by AreRemembered."""

    owner: str
    ids: tuple[str, ...]
    at_ms: int


class AreRemembered(_Message, frozen=True):
    """Which marks are known."""

    known: Known


class Read(_Message, frozen=True):
    """See Counters.read; answered by Readings."""

    meters: tuple[Meter, ...]
    at_ms: int


class Readings(_Message, frozen=True):
    """In the order of the meters."""

    readings: tuple[Reading, ...]


class Ping(_Message, frozen=True):
    """Answered by Done."""


class Lines(_Message, frozen=True):
    """Lines of the ledger, in their order."""

    entries: tuple[Entry, ...]


class BudgetAlert(_Message, frozen=True):
    """A threshold was gone over, and this is the first to know."""

    alert: Alert


class Breaker(_Message, frozen=True):
    """A target's breaker is in another state, in this worker. why: what failed last."""

    target: str
    state: State
    why: str


class KeyRefused(_Message, frozen=True):
    """A provider refused a key, in this worker."""

    told: RefusedKey


class VariantOut(_Message, frozen=True):
    """A side of an A/B test was taken out, in this worker."""

    told: TakenOut


class Sticks(_Message, frozen=True):
    """A session, or prompts that begin alike, have a target from now on."""

    model: str
    key: str | int
    target: str


class CounterFigures(_Message, frozen=True):
    """Values by labels of a CounterSeries."""

    name: str
    values: list[tuple[tuple[str, ...], int]]


class HistogramFigures(_Message, frozen=True):
    """Counts of each bucket and the total by labels of a HistogramSeries."""

    name: str
    values: list[tuple[tuple[str, ...], list[int], float]]


class Figures(_Message, frozen=True):
    """How a worker stands and what it counted since it started. lost: lines of the ledger that
    there was no room for."""

    counters: list[CounterFigures]
    histograms: list[HistogramFigures]
    in_flight: int
    lost: int
    standing: Standing


class AskFigures(_Message, frozen=True):
    """Answered by Figures."""


class AskMetrics(_Message, frozen=True):
    """Answered by Metrics."""


class Metrics(_Message, frozen=True):
    """/metrics of all workers."""

    kind: str
    text: bytes


class AskHealth(_Message, frozen=True):
    """Answered by Health."""


class Health(_Message, frozen=True):
    """How all workers stand together. parts: what /health tells of others, by name."""

    standing: Standing
    parts: dict[str, Any]


class AskExplain(_Message, frozen=True):
    """Who would be asked now, by this worker's own health of targets; answered by Explanation.
    caller: for whom, None for nobody in particular."""

    model: str
    body: bytes
    caller: Caller | None = None


class Explanation(_Message, frozen=True):
    """explained: None where the request would be refused; problem, code: why."""

    explained: Explained | None
    problem: str = ""
    code: str | None = None


class TakeOut(_Message, frozen=True):
    """Send a target nothing, or let it have requests again; answered by Done, whose problem is
    that there is none."""

    target: str
    out: bool


Message = (
    Start | ReservesAs | Serves | Prepare | Take | Forget | Drain | Cut | Done
    | Reserve | Reserved | End | Ended | SpentHere | First | IsFirst | Read | Readings | Ping
    | Remember | Remembers | AreRemembered
    | Lines | BudgetAlert | Breaker | KeyRefused | VariantOut | Sticks
    | Figures | AskFigures | AskMetrics | Metrics | AskHealth | Health | TakeOut
    | AskExplain | Explanation
)  # fmt: skip
