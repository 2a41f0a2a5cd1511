"""`python -m headrace.bench.load.worker`: one of several client processes, driven over its pipes.

Ends when the run is over or the process that started it is gone. Signals are left to that one.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import BinaryIO

from headrace.bench.load.client_run import ClientRun
from headrace.bench.load.frames import (
    Finished,
    Go,
    Look,
    Ready,
    Standing,
    Start,
    Stop,
    read_to_client,
    send,
)
from headrace.errors import HeadraceError
from headrace.http.event_loop import run_in_loop


async def serve(reader: asyncio.StreamReader, output: BinaryIO) -> None:
    """Take a job, do it, tell of it."""
    started = await read_to_client(reader)
    assert isinstance(started, Start)
    client = ClientRun(started.job)
    await client.open()
    _say(output, Ready())
    task: asyncio.Task[None] | None = None
    while task is None or not task.done():
        hearing = asyncio.ensure_future(read_to_client(reader))
        await asyncio.wait(
            {hearing, *([task] if task else [])}, return_when=asyncio.FIRST_COMPLETED
        )
        if not hearing.done():
            hearing.cancel()
            break
        try:
            message = hearing.result()
        except asyncio.IncompleteReadError:
            return  # whoever wanted the records is gone
        if isinstance(message, Go):
            task = asyncio.ensure_future(_run(client, message.origin_ns, output))
        elif isinstance(message, Stop):
            client.stop(message.ending)
        elif isinstance(message, Look):
            _say(output, Standing(await client.progress(message.read)))
    if task is not None:
        await task


async def _run(client: ClientRun, origin_ns: int, output: BinaryIO) -> None:
    try:
        _say(output, Finished(await client.run(origin_ns)))
    except HeadraceError as error:
        _say(output, Finished(None, str(error)))


def _say(output: BinaryIO, message: Ready | Standing | Finished) -> None:
    send(output, message)
    output.flush()


async def _main() -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await serve(reader, sys.stdout.buffer)


def main() -> None:
    """Run to the end of the job."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    run_in_loop(_main())


if __name__ == "__main__":
    main()
