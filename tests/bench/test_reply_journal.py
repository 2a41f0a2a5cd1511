"""Replies that a run leaves on disk while it goes on."""

from __future__ import annotations

from pathlib import Path

import msgspec

from headrace.bench.client.decode import Asked
from headrace.bench.client.raw import RawReply
from headrace.bench.journal import FOLDER, begin, begun, client_file
from headrace.bench.record import Failure
from headrace.bench.reply_journal import ReplyJournal, read_reply_journal

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


GOOD_PIECES = (event("one"), event("two"), b"data: [DONE]\n\n")
GOOD = reply(*GOOD_PIECES)


def asked(index: int) -> Asked:
    return Asked(index=index, intended_ns=index * 10)


def journal_in(folder: Path, secrets: tuple[str, ...] = ()) -> ReplyJournal:
    return ReplyJournal(client_file(folder / FOLDER, 0), "openai-chat", ORIGIN, secrets)


def test_replies_come_back_as_records(tmp_path: Path) -> None:
    begin(tmp_path, begun({}, None))
    journal = journal_in(tmp_path)
    journal.add(asked(3), GOOD, stream=True)
    journal.file.close()
    (record,) = read_reply_journal(tmp_path)[1]
    assert [chunk.text for chunk in record.content] == ["one", "two"]
    assert record.sent_ns == 2 and record.content[0].at_ns == 10
    assert record.intended_ns == 30


def test_a_client_that_died_before_its_first_frame_has_no_records(tmp_path: Path) -> None:
    begin(tmp_path, begun({}, None))
    client_file(tmp_path / FOLDER, 0).write_bytes(b"")
    assert read_reply_journal(tmp_path)[1] == []


def test_no_key_is_written_down(tmp_path: Path) -> None:
    begin(tmp_path, begun({}, None))
    journal = journal_in(tmp_path, secrets=(KEY,))
    across = event(f"it is {KEY}")
    cut = across.index(b"secret")
    journal.add(asked(0), reply(across[:cut], across[cut:], b"data: [DONE]\n\n"), stream=True)
    refused = reply(b'{"error": {"message": "no key %s"}}' % KEY.encode(), status=401)
    journal.add(asked(1), refused, stream=True)
    journal.add(asked(2), reply(failure=Failure("connect", f"refused {KEY}")), stream=True)
    cookies = {**GOOD.headers, "set-cookie": "id=other-secret-key", "x-queue-time": "5"}
    journal.add(asked(3), msgspec.structs.replace(GOOD, headers=cookies), stream=True)
    journal.file.close()
    kept = client_file(tmp_path / FOLDER, 0).read_bytes()
    assert KEY.encode() not in kept and b"secret-key" not in kept
    records = read_reply_journal(tmp_path)[1]
    assert records[0].content[0].text == "it is ********"
    assert records[1].failure is not None and records[1].failure.kind == "http"
    assert records[2].failure is not None and "********" in records[2].failure.message
    assert records[3].queue_ns == 5_000_000 and len(records[3].content) == 2


def test_a_key_in_a_word_of_the_format_does_not_break_the_reply(tmp_path: Path) -> None:
    begin(tmp_path, begun({}, None))
    journal = journal_in(tmp_path, secrets=("reasoning_content", '"choices'))
    journal.add(asked(0), reply(*GOOD_PIECES), stream=True)
    journal.add(asked(1), reply(event("reasoning_content"), b"data: [DONE]\n\n"), stream=True)
    journal.file.close()
    first, second = read_reply_journal(tmp_path)[1]
    assert [chunk.text for chunk in first.content] == ["one", "two"]
    assert first.content[1].at_ns == 11
    assert second.content[0].text == "********"
