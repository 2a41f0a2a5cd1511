"""What a run leaves on disk while it goes on, whatever is in its frames."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from headrace.bench.journal import (
    FOLDER,
    Begun,
    Journal,
    begin,
    begun,
    client_file,
    discard,
    is_journal,
    read_journal,
)
from headrace.bench.record import RequestRecord
from headrace.errors import ConfigError
from tests.waiting import until


class Head(msgspec.Struct):
    name: str


def journal_in(folder: Path, worker: int = 0) -> Journal:
    return Journal(client_file(folder / FOLDER, worker), Head("a"))


def record(index: int) -> RequestRecord:
    return RequestRecord(index=index, measured=True, intended_ns=index * 10)


def records_of(frames: Iterator[memoryview]) -> Iterator[RequestRecord]:
    for number, frame in enumerate(frames):
        if number:
            yield msgspec.msgpack.decode(frame, type=RequestRecord)
        else:
            assert msgspec.msgpack.decode(frame, type=Head) == Head("a")


def read(folder: Path) -> tuple[Begun, list[RequestRecord]]:
    return read_journal(folder, records_of)


def test_records_come_back_in_order_of_their_times(tmp_path: Path) -> None:
    begin(tmp_path, begun({"model": "m"}, "ttft:500"))
    first, second = journal_in(tmp_path, 0), journal_in(tmp_path, 1)
    first.add(record(3))
    second.add(record(1))
    first.close()
    second.close()
    assert is_journal(tmp_path)
    found, records = read(tmp_path)
    assert found.about == {"model": "m"} and found.slo == "ttft:500"
    assert [one.intended_ns for one in records] == [10, 30], "of both clients, in order"
    assert [one.index for one in records] == [0, 1]
    discard(tmp_path)
    assert not is_journal(tmp_path) and list(tmp_path.iterdir()) == []


def test_what_a_dying_writer_cut_short_is_left_out(tmp_path: Path) -> None:
    begin(tmp_path, begun({}, None))
    journal = journal_in(tmp_path)
    journal.add(record(0))
    journal.add(record(1))
    journal.close()
    path = client_file(tmp_path / FOLDER, 0)
    whole = path.read_bytes()
    counts = set()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        counts.add(len(read(tmp_path)[1]))
    assert counts == {0, 1}
    path.write_bytes(whole)
    assert len(read(tmp_path)[1]) == 2


async def test_it_is_handed_over_several_times_a_second(tmp_path: Path) -> None:
    begin(tmp_path, begun({}, None))
    journal = journal_in(tmp_path)
    writing = asyncio.create_task(journal.write())
    for at in range(3):
        journal.add(record(at))
    await until(lambda: len(read(tmp_path)[1]) == 3, "all of it, before anything was closed")
    writing.cancel()
    journal.close()


def test_a_disk_that_takes_nothing_ends_the_journal_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    begin(tmp_path, begun({}, None))
    journal = journal_in(tmp_path)
    discard(tmp_path)
    journal.add(record(0))
    journal.close()
    journal.add(record(1))
    assert "the run continues" in caplog.text


def test_other_files_are_refused(tmp_path: Path) -> None:
    inside = begin(tmp_path, begun({}, None))
    (inside / "run.json").write_text('{"format": 99, "about": {}, "slo": null}')
    with pytest.raises(ConfigError, match="has format 99, this version reads 1"):
        read(tmp_path)
    (inside / "run.json").write_text('{"about": {}}')
    with pytest.raises(ConfigError, match="was not written by this version of headrace"):
        read(tmp_path)
    begin(tmp_path, begun({}, None))
    client_file(inside, 0).write_bytes((3).to_bytes(4, "big") + b"\xc1\xc1\xc1")
    with pytest.raises(ConfigError, match="use the version that ran it"):
        read(tmp_path)
