"""What came back so far, on disk while a run goes on, so that a killed client leaves it behind.

Each client process has a file of frames: a length in four bytes, then MessagePack. The first frame
is a head that holds for all others; what the frames hold is up to who writes them
(`reply_journal.py`). Several times a second a thread hands to the system what has gathered
since. What a dying writer cut short is left out on reading. It knows nothing of requests that were
in flight when the client died.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from headrace.atomic_file import atomic_file
from headrace.bench.record import RequestRecord, RunMetadata
from headrace.bench.vllm_form import DEFAULT_FORM, VllmForm
from headrace.errors import ConfigError, shown

FOLDER = "partial"
"""In the folder of the run; gone once the run's own files are complete."""

FLUSH_S = 0.25

_RUN = "run.json"
_FORMAT = 1
_LENGTH_BYTES = 4

_log = logging.getLogger(__name__)


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a run, written before it begins."""

    format: int
    about: RunMetadata
    slo: str | None
    prices: RunMetadata = {}
    """Fields of `cost.Prices`."""
    vllm_keys: RunMetadata = {}
    vllm_form: VllmForm = DEFAULT_FORM
    """With `vllm_keys`: of the result.json that it would have written."""


def begin(folder: Path, begun: Begun) -> Path:
    """Make the journal's folder in that of the run, empty, and say where it is.

    Raises ConfigError where it cannot be made.
    """
    inside = folder / FOLDER
    discard(folder)
    try:
        inside.mkdir(parents=True)
        with atomic_file(inside / _RUN) as file:
            file.write(msgspec.json.encode(begun))
    except OSError as error:
        raise ConfigError(f"--save {folder}: {error.strerror}") from error
    return inside


def discard(folder: Path) -> None:
    """Once the run's own files are there."""
    shutil.rmtree(folder / FOLDER, ignore_errors=True)


class Journal:
    """A journal of one client process. `add` is called on the event loop, `write` runs until it is
    cancelled, and `close` ends it.

    A full disk ends the journal, not the run; it is logged once.
    """

    def __init__(self, path: Path, head: msgspec.Struct) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._waiting = bytearray()
        self._lock = threading.Lock()
        self._path = path
        self.is_open = True
        # The head is first, whichever thread writes what follows.
        self.add(head)
        self._hand_over(self._taken())

    def add(self, entry: msgspec.Struct) -> None:
        """One frame more."""
        if self.is_open:
            body = self._encoder.encode(entry)
            self._waiting += len(body).to_bytes(_LENGTH_BYTES, "big")
            self._waiting += body

    async def write(self) -> None:
        """Hand over what has gathered, again and again."""
        while self.is_open:
            await asyncio.sleep(FLUSH_S)
            taken = self._taken()
            if taken:
                await asyncio.to_thread(self._hand_over, taken)

    def close(self) -> None:
        """Hand over the rest."""
        self._hand_over(self._taken())
        self.is_open = False

    def _taken(self) -> bytearray:
        """On the event loop: nobody appends meanwhile."""
        taken, self._waiting = self._waiting, bytearray()
        return taken

    def _hand_over(self, taken: bytearray) -> None:
        with self._lock:
            if not taken or not self.is_open:
                return
            try:
                with self._path.open("ab", buffering=0) as file:
                    file.write(taken)
            except OSError as error:
                self.is_open = False
                _log.warning(
                    "%s: %s; the run continues, but nothing of it would be kept if it were killed",
                    self._path,
                    error.strerror,
                )


def client_file(folder: Path, worker: int) -> Path:
    """Of one client process, in the journal's folder."""
    return folder / f"client-{worker}.frames"


def is_journal(folder: Path) -> bool:
    """Whether a run that did not end has left something in its folder."""
    return (folder / FOLDER / _RUN).is_file()


def read_journal(
    folder: Path, records_of: Callable[[Iterator[memoryview]], Iterable[RequestRecord]]
) -> tuple[Begun, list[RequestRecord]]:
    """Of a run's folder: what it was to be, and what came back, in order of the intended times.

    records_of: gives the records in the frames of one client, its head among them; there are none
    of a client that died before it wrote any. Raises ConfigError where the files are not what this
    version writes.
    """
    inside = folder / FOLDER
    try:
        begun = msgspec.json.decode((inside / _RUN).read_bytes(), type=Begun)
        records = [
            record
            for path in sorted(inside.glob(client_file(Path(), 0).name.replace("0", "*")))
            for record in records_of(_frames(path.read_bytes()))
        ]
    except OSError as error:
        raise ConfigError(f"{shown(str(inside))} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{shown(str(inside))} was not written by this version of headrace: {error}; use "
            "the version that ran it"
        ) from error
    if begun.format != _FORMAT:
        raise ConfigError(
            f"{shown(str(inside))} has format {begun.format}, this version reads {_FORMAT}; use "
            "the version that ran it"
        )
    records.sort(key=lambda record: (record.intended_ns, record.index))
    return begun, [
        msgspec.structs.replace(record, index=index) for index, record in enumerate(records)
    ]


def begun(
    about: RunMetadata,
    slo: str | None,
    prices: RunMetadata | None = None,
    vllm_keys: RunMetadata | None = None,
    vllm_form: VllmForm = DEFAULT_FORM,
) -> Begun:
    """In this version's format."""
    return Begun(
        format=_FORMAT,
        about=about,
        slo=slo,
        prices=prices or {},
        vllm_keys=vllm_keys or {},
        vllm_form=vllm_form,
    )


def _frames(data: bytes) -> Iterator[memoryview]:
    """Those that are whole."""
    view = memoryview(data)
    at = 0
    while at + _LENGTH_BYTES <= len(view):
        start = at + _LENGTH_BYTES
        at = start + int.from_bytes(view[at:start], "big")
        if at > len(view):
            return
        yield view[start:at]
