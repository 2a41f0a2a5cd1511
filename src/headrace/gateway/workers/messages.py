"""The messages between a worker and its parent."""

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
    """The parent's first message: what to serve, and where."""

    path: str
    text: str
    """The text of the configuration at `path`."""
    host: str
    port: int
    number: int
    """The worker's number among `workers`, from 0."""
    workers: int


class ReservesAs(_Message, frozen=True):
    """The prefix of a worker's reservation ids; sent before the first reservation."""

    owner: str


class Serves(_Message, frozen=True):
    """The report that the worker answers requests from now on."""


class Prepare(_Message, frozen=True):
    """An order to make a gateway of this text and keep it ready; answered by Done."""

    text: str


class Take(_Message, frozen=True):
    """An order to use what was prepared from now on; answered by Done."""


class Forget(_Message, frozen=True):
    """An order to discard what was prepared."""


class Drain(_Message, frozen=True):
    """An order to take no more requests, answer those under way, end."""


class Cut(_Message, frozen=True):
    """An order to end at once, whatever is under way."""


class Done(_Message, frozen=True):
    """The outcome of a request: the problem, "" if it succeeded."""

    problem: str = ""


class Reserve(_Message, frozen=True):
    """A call of Counters.reserve; answered by Reserved."""

    id: str
    wanted: tuple[Wanted, ...]
    at_ms: int


class Reserved(_Message, frozen=True):
    """The limits that are short; empty if everything was reserved."""

    short: tuple[Shortage, ...]


class End(_Message, frozen=True):
    """A call of Counters.end; answered by Ended. Empty `counted` undoes a possible reservation."""

    id: str
    counted: tuple[Counted, ...]
    reserved_ms: int
    at_ms: int


class Ended(_Message, frozen=True):
    """The answer to End, a counters.Ended."""

    first: bool
    used: tuple[int, ...]


class SpentHere(_Message, frozen=True):
    """Spending that a worker counted by itself while the parent did not answer."""

    counted: tuple[Counted, ...]
    at_ms: int


class First(_Message, frozen=True):
    """A call of Counters.first; answered by IsFirst."""

    mark: str
    until_ms: int
    at_ms: int


class IsFirst(_Message, frozen=True):
    """The answer to First: whether the mark is new."""

    first: bool


class Remember(_Message, frozen=True):
    """A call of Counters.remember; answered by Done."""

    marks: tuple[Mark, ...]
    at_ms: int


class Remembers(_Message, frozen=True):
    """A call of Counters.remembers; answered by AreRemembered."""

    owner: str
    ids: tuple[str, ...]
    at_ms: int


class AreRemembered(_Message, frozen=True):
    """The known marks."""

    known: Known


class Read(_Message, frozen=True):
    """A call of Counters.read; answered by Readings."""

    meters: tuple[Meter, ...]
    at_ms: int


class Readings(_Message, frozen=True):
    """Readings in the order of the meters."""

    readings: tuple[Reading, ...]


class Ping(_Message, frozen=True):
    """A check of the link, answered by Done."""


class Lines(_Message, frozen=True):
    """Ledger lines in order."""

    entries: tuple[Entry, ...]


class BudgetAlert(_Message, frozen=True):
    """A threshold that was crossed; this worker is the first to know."""

    alert: Alert


class Breaker(_Message, frozen=True):
    """A target's breaker changed state in this worker; `why` is the last failure."""

    target: str
    state: State
    why: str


class KeyRefused(_Message, frozen=True):
    """A provider refused a key, in this worker."""

    told: RefusedKey


class VariantOut(_Message, frozen=True):
    """An A/B variant was taken out in this worker."""

    told: TakenOut


class Sticks(_Message, frozen=True):
    """A session, or prompts that begin alike, stick to a target from now on."""

    model: str
    key: str | int
    target: str


class CounterFigures(_Message, frozen=True):
    """The values of a CounterSeries, by labels."""

    name: str
    values: list[tuple[tuple[str, ...], int]]


class HistogramFigures(_Message, frozen=True):
    """The bucket counts and totals of a HistogramSeries, by labels."""

    name: str
    values: list[tuple[tuple[str, ...], list[int], float]]


class Figures(_Message, frozen=True):
    """A worker's state and counts since its start. `lost` counts ledger lines that did not fit."""

    counters: list[CounterFigures]
    histograms: list[HistogramFigures]
    in_flight: int
    lost: int
    standing: Standing


class AskFigures(_Message, frozen=True):
    """A request for Figures."""


class AskMetrics(_Message, frozen=True):
    """A request for Metrics."""


class Metrics(_Message, frozen=True):
    """The /metrics of all workers."""

    kind: str
    text: bytes


class AskHealth(_Message, frozen=True):
    """A request for Health."""


class Health(_Message, frozen=True):
    """The combined state of all workers; `parts` holds further parts of /health by name."""

    standing: Standing
    parts: dict[str, Any]


class AskExplain(_Message, frozen=True):
    """A query for the targets that this worker would use now, by its view of health; answered by
    Explanation. `caller` is whose request it is, None for no one in particular."""

    model: str
    body: bytes
    caller: Caller | None = None


class Explanation(_Message, frozen=True):
    """The answer to AskExplain; without `explained` the request would be refused for `problem`."""

    explained: Explained | None
    problem: str = ""
    code: str | None = None


class TakeOut(_Message, frozen=True):
    """An order to take a target out of service or put it back; answered by Done, with a problem if
    it does not exist.
    """

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
