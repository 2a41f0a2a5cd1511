"""A result of `headrace bench load`, as far as plans look at it.

The files are docs/bench-results.md's: result.json, requests.jsonl, metrics.jsonl. Of chunks the
times are kept where they are asked for, and else that of the first with text alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from headrace.errors import ConfigError, shown
from headrace.telemetry.readings import Reading, read_texts

RESULT, REQUESTS, METRICS, SERIES = (
    "result.json", "requests.jsonl", "metrics.jsonl", "series.json",
)  # fmt: skip
_CONTENT = ("text", "reasoning", "tool")
_FORMAT = 1

T = TypeVar("T")


class Client(msgspec.Struct, frozen=True):
    """The verdict whether the client was the limit, and its sentences; None: not measured."""

    client_bound: bool | None = None
    sentences: tuple[str, ...] = ()


class _Summary(msgspec.Struct, frozen=True):
    definition: str = ""
    duration_s: float | None = None
    client: Client = Client()


class _Result(msgspec.Struct, frozen=True):
    format: int
    about: dict[str, Any] = {}
    summary: _Summary = _Summary()


class _File(msgspec.Struct, frozen=True):
    headrace: _Result


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None


class _Failure(msgspec.Struct, frozen=True):
    kind: str = ""
    message: str = ""


class _Chunk(msgspec.Struct, frozen=True, array_like=True):
    at_ns: int
    kind: str = ""
    text: str = ""


class _Request(msgspec.Struct, frozen=True):
    index: int
    measured: bool
    intended_ns: int
    sent_ns: int | None = None
    end_ns: int | None = None
    chunks: tuple[_Chunk, ...] = ()
    status: int | None = None
    failure: _Failure | None = None
    usage: _Usage = _Usage()
    session: int | None = None
    prompt_tokens_asked: int | None = None
    client_prompt_tokens: int | None = None
    client_output_tokens: int | None = None


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request; times in seconds of the run. ttft_s, e2e_s: from the send; None: never.

    content_s: when each chunk with a part of the answer came; empty where nobody asked.
    """

    index: int
    measured: bool
    intended_s: float
    sent_s: float | None
    end_s: float | None
    ttft_s: float | None
    failure: str
    status: int | None
    prompt_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    session: int | None
    content_s: tuple[float, ...] = ()

    @property
    def e2e_s(self) -> float | None:
        if self.sent_s is None or self.end_s is None or self.failure:
            return None
        return self.end_s - self.sent_s


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run of `headrace bench load`, as the plan reads it."""

    where: str
    """The folder."""
    about: dict[str, Any]
    """What it was, flat."""
    definition: str
    duration_s: float | None
    client: Client
    requests: tuple[Request, ...]
    readings: tuple[Reading, ...]
    """Readings of the server's /metrics."""

    @property
    def measured(self) -> tuple[Request, ...]:
        """Without warm-up."""
        return tuple(one for one in self.requests if one.measured)

    @property
    def completed(self) -> tuple[Request, ...]:
        """Measured ones that came to their end."""
        return tuple(one for one in self.measured if not one.failure and one.end_s is not None)


def read_run(path: Path, *, with_chunks: bool = False) -> Run:
    """Of a folder or its result.json; of a sweep or search the run that its report shows.

    with_chunks: fill `Request.content_s`.

    Raises ConfigError that says what the file is not.
    """
    folder = path if path.is_dir() else path.parent
    folder = _shown_run(folder)
    result = _decoded(folder / RESULT, _File).headrace
    if result.format != _FORMAT:
        raise ConfigError(
            f"{folder / RESULT} has format {result.format}, this version reads {_FORMAT}; use the "
            "version that wrote it"
        )
    texts = _lines(folder / METRICS, tuple[int, str]) if (folder / METRICS).exists() else ()
    return Run(
        where=str(folder),
        about=result.about,
        definition=result.summary.definition,
        duration_s=result.summary.duration_s,
        client=result.summary.client,
        requests=tuple(_request(one, with_chunks) for one in _lines(folder / REQUESTS, _Request)),
        readings=tuple(one for one in read_texts(texts)[0] if one.values),
    )


def is_run(path: Path) -> bool:
    """Whether it is a folder of a run, or its result.json."""
    if path.is_dir():
        return (path / RESULT).is_file() or (path / SERIES).is_file()
    return path.name == RESULT


class _Series(msgspec.Struct, frozen=True):
    shown: str | None = None


def _shown_run(folder: Path) -> Path:
    if (folder / RESULT).is_file() or not (folder / SERIES).is_file():
        return folder
    shown_folder = _decoded(folder / SERIES, _Series).shown
    if shown_folder is None or ".." in Path(shown_folder).parts or shown_folder.startswith("/"):
        raise ConfigError(f"{folder}: the sweep did not end; name one of its runs, runs/01 …")
    return folder / shown_folder


def _request(one: _Request, with_chunks: bool) -> Request:
    content = (c.at_ns for c in one.chunks if c.kind in _CONTENT and c.text)
    times = tuple(content) if with_chunks else ()
    first = times[0] if times else next(content, None)
    told = one.usage.prompt_tokens
    prompt = told if told is not None else one.client_prompt_tokens or one.prompt_tokens_asked
    output = one.usage.completion_tokens
    sent = None if one.sent_ns is None else one.sent_ns / 1e9
    return Request(
        index=one.index,
        measured=one.measured,
        intended_s=one.intended_ns / 1e9,
        sent_s=sent,
        end_s=None if one.end_ns is None else one.end_ns / 1e9,
        ttft_s=None if first is None or sent is None else first / 1e9 - sent,
        failure="" if one.failure is None else one.failure.kind,
        status=one.status,
        prompt_tokens=prompt,
        output_tokens=output if output is not None else one.client_output_tokens,
        cached_tokens=one.usage.cached_tokens,
        session=one.session,
        content_s=tuple(at / 1e9 for at in times),
    )


def percentile(values: Sequence[float], quantile: float) -> float:
    """Linear between ranks, of at least one value in any order."""
    ordered = sorted(values)
    place = quantile * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def _decoded(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise ConfigError(
            f"{shown(str(path))} cannot be read: {error.strerror}; name a folder that "
            "`headrace bench load --save` wrote"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{shown(str(path))} is not a result of headrace bench load: {error}; name a "
            "folder that its --save wrote"
        ) from error


def _lines(path: Path, kind: type[T]) -> Iterator[T]:
    decoder = msgspec.json.Decoder(kind)
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    return  # a writer that died
                try:
                    yield decoder.decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise ConfigError(f"{shown(str(path))}, line {number}: {error}") from error
    except OSError as error:
        raise ConfigError(
            f"{shown(str(path))} cannot be read: {error.strerror}; a run's files stay in one folder"
        ) from error
