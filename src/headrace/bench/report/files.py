"""A run on disk, and back: one folder, files that other programs can read.

`result.json` has vLLM's keys on its top level, so that scripts written for them go on working, and
ours below "headrace". `requests.jsonl` has every request with every chunk; from it each figure can
be made anew, under any definition. `requests.csv` is for spreadsheets, `metrics.jsonl` what the
server said of itself. A file has its name only once it is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, TypeVar

import msgspec

from headrace.atomic_file import atomic_file
from headrace.bench.definitions import DEFINITIONS, Definition
from headrace.bench.record import ClientHealth, RequestRecord, RunMetadata, RunRecord
from headrace.bench.report.csv_rows import csv_lines
from headrace.bench.slo import Slo
from headrace.bench.summary import Summary
from headrace.bench.vllm_form import DEFAULT_FORM, VllmForm
from headrace.bench.vllm_result import Value, vllm_result
from headrace.errors import ConfigError, shown

FORMAT = 1
"""Of the "headrace" object and its neighbours; a reader refuses what is newer."""

RESULT, REQUESTS, CSV, METRICS = "result.json", "requests.jsonl", "requests.csv", "metrics.jsonl"

T = TypeVar("T")


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of result.json, without vllm's keys."""

    format: int
    about: RunMetadata
    slo: str | None
    summary: Summary
    health: ClientHealth
    requests: int
    readings: int
    """With `requests`: lines of requests.jsonl and metrics.jsonl, by which one that was cut short
    is found out."""
    vllm_keys: RunMetadata = {}
    vllm_form: VllmForm = DEFAULT_FORM
    """With `vllm_keys`: as they were given to `write_run`."""


class _File(msgspec.Struct, frozen=True):
    """result.json as far as it is ours; vLLM's keys beside it are not read."""

    headrace: Result


def write_run(
    folder: Path,
    run: RunRecord,
    summary: Summary,
    *,
    slo: Slo | None = None,
    definition: Definition = DEFINITIONS["headrace"],
    vllm_keys: RunMetadata | None = None,
    vllm_form: VllmForm = DEFAULT_FORM,
) -> None:
    """Write all files of a run into `folder`, which is made; files of those names are replaced.

    result.json comes last: where it stands, the others are complete. vllm_keys: what vLLM takes
    from its command line (`vllm_result.vllm_keys`), vllm_form: which statistics its keys have.
    definition: of the columns of requests.csv.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(folder / REQUESTS) as file:
        write_requests(file, run.requests)
    with atomic_file(folder / CSV) as file:
        for line in csv_lines(run.requests, definition.of_api(run.api), slo):
            file.write(line)
    with atomic_file(folder / METRICS) as file:
        for reading in run.server_metrics:
            file.write(msgspec.json.encode(reading) + b"\n")
    result = Result(
        format=FORMAT,
        about=run.about,
        slo=None if slo is None else slo.text,
        summary=summary,
        health=run.health,
        requests=len(run.requests),
        readings=len(run.server_metrics),
        vllm_keys=vllm_keys or {},
        vllm_form=vllm_form,
    )
    whole: dict[str, Value | Result] = {**(vllm_keys or {})}
    whole |= vllm_result(run, slo=slo, form=vllm_form)
    whole["headrace"] = result
    with atomic_file(folder / RESULT) as file:
        file.write(msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n")


# As much as the files of a hundred requests; a disk with less is full.
_NEEDED_BYTES = 2**20


def check_folder(flag: str, folder: Path) -> None:
    """Before minutes of measuring. Raises ConfigError for a folder that cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder) as file:
            file.write(bytes(_NEEDED_BYTES))
    except OSError as error:
        raise ConfigError(
            f"{flag} {folder}: {error.strerror}; nothing was sent: name a folder that can be "
            f"written to, on a disk with {_NEEDED_BYTES:,} bytes free"
        ) from error


def write_text(path: Path, text: str) -> None:
    """A page, or a table, in UTF-8; half a surrogate pair, which it cannot say, is a question mark.

    Whoever looks at the file meanwhile sees all of the old one or all of the new.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        file.write(text.encode(errors="replace"))


def write_requests(file: BinaryIO, records: Iterable[RequestRecord]) -> int:
    """A line of JSON for each record as it comes; how many there were."""
    written = 0
    encoder = msgspec.json.Encoder()
    buffer = bytearray()
    for record in records:
        encoder.encode_into(record, buffer)
        buffer += b"\n"
        file.write(buffer)
        del buffer[:]
        written += 1
    return written


def read_result(path: Path) -> Result:
    """Of a result.json or the folder that holds it. Raises ConfigError that says what is wrong."""
    path = _result_path(path)
    try:
        result = msgspec.json.decode(_bytes(path), type=_File).headrace
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(_no_result(path, error)) from error
    if result.format != FORMAT:
        raise ConfigError(
            f"{shown(str(path))} has format {result.format}, this version reads {FORMAT}; use the "
            "version that wrote it, or repeat the run"
        )
    return result


def _no_result(path: Path, error: ValueError | msgspec.DecodeError) -> str:
    """What the file is, where that can be told, and what to do."""
    told = shown(str(path))
    try:
        keys = set(msgspec.json.decode(_bytes(path), type=dict[str, msgspec.Raw]))
    except (msgspec.DecodeError, UnicodeDecodeError):
        keys = set()
    if "summary" in keys:
        return (
            f"{told} is what --json printed, which has a summary but no requests: add --save "
            "DIR to the run, and name that folder"
        )
    if "request_throughput" in keys and "headrace" not in keys:
        return (
            f"{told} is a result of vllm bench serve, which does not keep requests; measure with "
            f"headrace bench load --save, and name a {RESULT} that it wrote"
        )
    return (
        f"{told} is not a result of headrace bench: {error}; name a {RESULT} that it wrote, or its "
        "folder"
    )


def read_run(path: Path) -> RunRecord:
    """The whole record of a run, from its result.json or folder. Raises ConfigError."""
    result = read_result(path)
    folder = _result_path(path).parent
    requests = tuple(read_requests(folder / REQUESTS))
    metrics = tuple(_lines(folder / METRICS, tuple[int, str]))
    for name, found, wanted in (
        (REQUESTS, len(requests), result.requests),
        (METRICS, len(metrics), result.readings),
    ):
        if found != wanted:
            raise ConfigError(
                f"{shown(str(folder / name))} has {found} lines where {RESULT} says {wanted}; "
                "it belongs to another run or was cut short"
            )
    return RunRecord(
        about=result.about, requests=requests, health=result.health, server_metrics=metrics
    )


def read_requests(path: Path) -> Iterator[RequestRecord]:
    """One after the other. A last line without its end, of a writer that died, is left out."""
    return _lines(path, RequestRecord)


def _lines(path: Path, kind: type[T]) -> Iterator[T]:
    decoder = msgspec.json.Decoder(kind)
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    return
                try:
                    yield decoder.decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise ConfigError(
                        f"{shown(str(path))}, line {number}: {error}; the file was changed or "
                        "written by another version"
                    ) from error
    except OSError as error:
        raise _unreadable(path, error) from error


def _result_path(path: Path) -> Path:
    return path / RESULT if path.is_dir() else path


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"{shown(str(path))} cannot be read: {error.strerror}; a run's files stay in one folder"
    )
