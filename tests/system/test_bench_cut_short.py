"""`headrace bench load` that something ends before its time, or that cannot write what it found.

What was measured is kept, the exit status says what happened, and nobody waits for ever.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.bench.misbehaving import (
    DONE,
    GOOD_EVENTS,
    LAST_PIECE,
    Request,
    always,
    good_reply,
    misbehaving,
    piece,
    stream_head,
)
from tests.system.bench_load_process import (
    LIMIT_S,
    REQUESTS,
    SMALL,
    begin,
    ended,
    load,
    load_apart,
    silent,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.process


class Watched:
    """A server whose replies take a moment; `busy` once so many requests have come."""

    def __init__(self, after: int = 6) -> None:
        self.busy = threading.Event()
        self.posts = 0
        self._after = after

    async def answer(self, _request: Request, writer: asyncio.StreamWriter) -> bool:
        self.posts += 1
        if self.posts > self._after:
            self.busy.set()
        writer.write(stream_head())
        for one in (*GOOD_EVENTS, DONE):
            writer.write(piece(one))
            await writer.drain()
            await asyncio.sleep(0.05)
        writer.write(LAST_PIECE)
        await writer.drain()
        return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_signal_ends_the_run_and_keeps_it(
    number: signal.Signals, processes: str, tmp_path: Path
) -> None:
    watched = Watched()
    with misbehaving(watched.answer) as url:
        process = begin(url, tmp_path, "--duration", "600", "--processes", processes)
        assert watched.busy.wait(LIMIT_S)
        process.send_signal(number)
        ran = ended(process, tmp_path)
    assert ran.status == 130
    run = ran.run
    assert run.about["ending"] == "interrupted"
    assert sum(one.failure is None for one in run.requests) >= 2
    assert set(ran.failures) <= {"cancelled"}


def pending(pid: int) -> bool:
    """Whether a SIGINT waits for the process: two would be one."""
    fields = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return bool(int(fields["ShdPnd"], 16) >> (signal.SIGINT - 1) & 1)


def test_a_second_signal_ends_the_process(tmp_path: Path) -> None:
    """At whatever it is by then; the first one may have been enough."""
    watched = Watched()
    with misbehaving(watched.answer) as url:
        process = begin(url, tmp_path, "--duration", "600")
        assert watched.busy.wait(LIMIT_S)
        process.send_signal(signal.SIGINT)
        wait_until(lambda: not pending(process.pid), "the first signal taken")
        process.send_signal(signal.SIGINT)
        ran = ended(process, tmp_path)
    assert ran.status == 130


def test_ctrl_c_before_anything_is_sent(tmp_path: Path) -> None:
    asked = threading.Event()

    async def get(request: Request, writer: asyncio.StreamWriter) -> bool:
        asked.set()
        return await silent(request, writer)

    with misbehaving(always(good_reply()), get=get) as url:
        process = begin(url, tmp_path)
        assert asked.wait(LIMIT_S)
        process.send_signal(signal.SIGINT)
        ran = ended(process, tmp_path)
    assert (ran.status, ran.output) == (130, "")


def test_a_client_process_is_killed(tmp_path: Path) -> None:
    watched = Watched(12)
    with misbehaving(watched.answer) as url:
        process = begin(url, tmp_path, "--duration", "600", "--processes", "2")
        assert watched.busy.wait(LIMIT_S)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        if not children.exists():
            process.kill()
            pytest.skip("this kernel does not tell the children of a process")
        os.kill(int(children.read_text().split()[0]), signal.SIGKILL)
        ran = ended(process, tmp_path)
    assert ran.status == 1
    assert "1 client processes died, and what they had measured is lost" in ran.line
    assert ran.run.about["lost_client_processes"] == 1
    assert any(one.failure is None for one in ran.run.requests)


def test_the_server_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headrace", "bench", "mock", "--port", "0", "--json"]
    with subprocess.Popen([*command, "--tpot", "40"], stdout=subprocess.PIPE, text=True) as mock:
        assert mock.stdout is not None
        url = json.loads(mock.stdout.readline())["url"]
        process = begin(url, tmp_path, "-n", "30")
        journal = tmp_path / "partial" / "client-0.frames"
        wait_until(
            lambda: (
                (journal.exists() and journal.stat().st_size > 2000) or process.poll() is not None
            ),
            "a journal of 2,000 bytes",
        )
        mock.kill()
        ran = ended(process, tmp_path)
    assert ran.status == 1, ran
    assert "refused the connection" in ran.line
    assert ran.failures["connect"] > 1
    assert sum(one.failure is None for one in ran.run.requests) >= 2


@pytest.mark.parametrize("how", ["nowhere", "forbidden", "full"])
def test_a_folder_that_cannot_be_written_is_found_first(how: str, tmp_path: Path) -> None:
    watched = Watched()
    (tmp_path / "file").touch()
    folder = {"nowhere": tmp_path / "file" / "out", "forbidden": Path("/proc/self")}.get(
        how, tmp_path / "out"
    )
    if how == "forbidden" and not folder.exists():
        pytest.skip("there is no /proc, in which nobody can write")
    with misbehaving(watched.answer) as url:
        flags = (*SMALL, "-n", "4", "--save", str(folder))
        command = [sys.executable, "-m", "headrace", "bench", "load", url, *flags]
        if how == "full":  # no file may be larger than a block of 512 or 1024 bytes
            command = ["sh", "-c", 'ulimit -f 1; exec "$@"', "sh", *command]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, watched.posts) == (2, 0)
    told = " ".join(done.stderr.split())
    assert f"Error: --save {folder}: " in told
    assert "nothing was sent" in told


def test_what_cannot_be_saved_is_shown(tmp_path: Path) -> None:
    folder = tmp_path / "out"

    async def breaking(request: Request, writer: asyncio.StreamWriter) -> bool:
        if request.number == 2:
            shutil.rmtree(folder)
            folder.touch()
        return await always(good_reply())(request, writer)

    with misbehaving(breaking) as url:
        ran = load(url, folder)
    assert ran.status == 1
    assert ran.line.startswith(f"headrace: --save {folder}: ")
    assert "completed" in ran.output


def test_what_cannot_be_shown_is_saved(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    with misbehaving(always(good_reply())) as url:
        ran = load_apart(url, tmp_path, shell="exec > /dev/full;")
    assert ran.status == 1
    assert ran.line == "headrace: cannot write the output: No space left on device"
    assert len(ran.run.requests) == REQUESTS
