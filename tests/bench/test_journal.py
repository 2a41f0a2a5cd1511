"""What a run leaves on disk while it goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headrace.bench.client.decode import Asked
from headrace.bench.client.raw import RawReply
from headrace.bench.journal import (
    FOLDER,
    Journal,
    begin,
    begun,
    client_file,
    discard,
    is_journal,
    read_journal,
)
from headrace.bench.record import Failure
from headrace.errors import ConfigError

ORIGIN = 1_000
KEY = "sk-a-secret-key-of-thirty-letters"


def event(text: str) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % text.encode()


def reply(*pieces: bytes, status: int = 200, failure: Failure | None = None) -> RawReply:
    return RawReply(
        begun_ns=ORIGIN + 1,
        sent_ns=ORIGIN + 2,
        headers_ns=ORIGIN + 3,
        end_ns=ORIGIN + 100,
        status=status,
        headers={"content-type": "text/event-stream"},
        pieces=tuple((ORIGIN + 10 + at, piece) for at, piece in enumerate(pieces)),
        complete=failure is None,
        failure=failure,
    )


GOOD = reply(event("one"), event("two"), b"data: [DONE]\n\n")


def asked(index: int) -> Asked:
    return Asked(index=index, intended_ns=index * 10)


def journal_in(folder: Path, worker: int = 0, **rest: object) -> Journal:
    inside = folder / FOLDER
    return Journal(client_file(inside, worker), "openai-chat", ORIGIN, **rest)  # type: ignore[arg-type]


def test_replies_come_back_as_records(tmp_path: Path) -> None:
    begin(tmp_path, begun({"model": "m"}, "ttft:500"))
    first, second = journal_in(tmp_path, 0), journal_in(tmp_path, 1)
    first.add(asked(3), GOOD, stream=True)
    second.add(asked(1), GOOD, stream=True)
    first.close()
    second.close()
    assert is_journal(tmp_path)
    found, records = read_journal(tmp_path)
    assert found.about == {"model": "m"} and found.slo == "ttft:500"
    assert [one.intended_ns for one in records] == [10, 30], "of both clients, in order"
    assert [one.index for one in records] == [0, 1]
    assert [chunk.text for chunk in records[0].content] == ["one", "two"]
    assert records[0].sent_ns == 2 and records[0].content[0].at_ns == 10
    discard(tmp_path)
    assert not is_journal(tmp_path) and list(tmp_path.iterdir()) == []


def test_what_a_dying_writer_cut_short_is_left_out(tmp_path: Path) -> None:
    begin(tmp_path, begun({}, None))
    journal = journal_in(tmp_path)
    journal.add(asked(0), GOOD, stream=True)
    journal.add(asked(1), GOOD, stream=True)
    journal.close()
    path = client_file(tmp_path / FOLDER, 0)
    whole = path.read_bytes()
    counts = set()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        counts.add(len(read_journal(tmp_path)[1]))
    assert counts == {0, 1}
    path.write_bytes(whole)
    assert len(read_journal(tmp_path)[1]) == 2


def test_no_key_is_written_down(tmp_path: Path) -> None:
    begin(tmp_path, begun({}, None))
    journal = journal_in(tmp_path, secrets=(KEY,))
    across = event(f"it is {KEY}")
    cut = across.index(b"secret")
    journal.add(asked(0), reply(across[:cut], across[cut:], b"data: [DONE]\n\n"), stream=True)
    refused = reply(b'{"error": {"message": "no key %s"}}' % KEY.encode(), status=401)
    journal.add(asked(1), refused, stream=True)
    journal.add(asked(2), reply(failure=Failure("connect", f"refused {KEY}")), stream=True)
    journal.close()
    kept = client_file(tmp_path / FOLDER, 0).read_bytes()
    assert KEY.encode() not in kept and b"secret-key" not in kept
    records = read_journal(tmp_path)[1]
    assert records[0].content[0].text == "it is ********"
    assert records[1].failure is not None and records[1].failure.kind == "http"
    assert records[2].failure is not None and "********" in records[2].failure.message


async def test_it_is_handed_over_several_times_a_second(tmp_path: Path) -> None:
    begin(tmp_path, begun({}, None))
    journal = journal_in(tmp_path)
    writing = asyncio.create_task(journal.write())
    for at in range(3):
        journal.add(asked(at), GOOD, stream=True)
    for _ in range(200):
        await asyncio.sleep(0.05)
        if len(read_journal(tmp_path)[1]) == 3:
            break
    assert len(read_journal(tmp_path)[1]) == 3, "before anything was closed"
    writing.cancel()
    journal.close()


def test_a_disk_that_takes_nothing_ends_the_journal_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    begin(tmp_path, begun({}, None))
    journal = journal_in(tmp_path)
    discard(tmp_path)
    journal.add(asked(0), GOOD, stream=True)
    journal.close()
    journal.add(asked(1), GOOD, stream=True)
    assert "the run goes on" in caplog.text


def test_other_files_are_refused(tmp_path: Path) -> None:
    inside = begin(tmp_path, begun({}, None))
    (inside / "run.json").write_text('{"format": 99, "about": {}, "slo": null}')
    with pytest.raises(ConfigError, match="has format 99, this version reads 1"):
        read_journal(tmp_path)
    (inside / "run.json").write_text('{"about": {}}')
    with pytest.raises(ConfigError, match="is not what this version of headrace leaves"):
        read_journal(tmp_path)
    begin(tmp_path, begun({}, None))
    client_file(inside, 0).write_bytes((3).to_bytes(4, "big") + b"\xc1\xc1\xc1")
    with pytest.raises(ConfigError, match="use the version that ran it"):
        read_journal(tmp_path)
