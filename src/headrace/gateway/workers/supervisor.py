"""Keeps the configured number of workers serving, with one configuration.

Each worker has its own listening socket on the common port (SO_REUSEPORT), which the parent holds
too. With one shared socket, one worker of four got up to 80 % of a burst of connections; with their
own sockets each got about a quarter. Connections waiting in a dead worker's socket wait for its
successor, which is started at once, or after growing delays while workers die young.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.gateway.workers import messages
from headrace.gateway.workers.link import Link, LinkLostError, TooLongError
from headrace.gateway.workers.member import Member
from headrace.gateway.workers.shared import Shared
from headrace.gateway.workers.spawn import described, spawn

logger = logging.getLogger(__name__)

# A large file takes a worker about a second.
_START_S = 30.0
_RELOAD_S = 30.0
# A worker that served this long did not die of the same cause as its predecessor.
_YOUNG_S = 10.0
_FIRST_WAIT_S, _MOST_WAIT_S = 0.5, 8.0
_MOST_IN_A_ROW = 6
# After the message to end at once; only work in threads takes longer.
_KILL_AFTER_S = 15.0


class WorkersFailedError(HeadraceError):
    """Workers end again and again, or did not start."""


class Supervisor:
    """The supervisor of the workers.

    `sockets` has one for each worker. `text` is that of the configuration at `path`, which was
    checked. `failed` is done with the error that ends everything.
    """

    def __init__(
        self,
        shared: Shared,
        sockets: Sequence[socket.socket],
        path: Path,
        text: str,
        *,
        clock_s: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._shared = shared
        self._sockets = sockets
        self._path = path
        self._text = text
        self._clock_s = clock_s
        self._sleep = sleep
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._keeping: list[asyncio.Task[None]] = []
        self._reloading = asyncio.Lock()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        """Wait until all serve. Raises WorkersFailedError: what fails at once would fail again."""
        numbers = range(len(self._sockets))
        members = await asyncio.gather(*(self._start(number) for number in numbers))
        for member in members:
            self._keeping.append(asyncio.ensure_future(self._keep(member)))

    async def reload(self, text: str) -> str:
        """Make all workers use another text, or none; return the problem, "" for none."""
        async with self._reloading:
            members = self._shared.serving()
            problems = await asyncio.gather(
                *(_asked(member, messages.Prepare(text)) for member in members)
            )
            problem = next((problem_of for problem_of in problems if problem_of), "")
            if problem:
                for member in members:
                    if member.link is not None:
                        member.link.tell(messages.Forget())
                return problem
            self._text = text
            self._shared.begin_afresh()
            problems = await asyncio.gather(
                *(_asked(member, messages.Take()) for member in members)
            )
            for member, refusal in zip(members, problems, strict=True):
                if refusal and member.is_serving:
                    # It must not go on with a different configuration from the others.
                    logger.error("worker %d rejected the file: %s", member.number, refusal)
                    self._kill(member.number)
            return ""

    async def ask_all(self, message: messages.Message) -> list[str]:
        """Each serving worker's problem with it, "" for none."""
        return list(
            await asyncio.gather(*(_asked(member, message) for member in self._shared.serving()))
        )

    def drain(self) -> None:
        """Stop accepting requests; each worker ends when its requests are answered."""
        self._shared.ending = True
        # Workers close theirs; connections to one held open here would wait in vain.
        for listening in self._sockets:
            listening.close()
        self._tell_all(messages.Drain())

    def cut(self) -> None:
        """End all workers at once."""
        self._shared.ending = True
        self._tell_all(messages.Cut())

    async def ended(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s`; return whether all have ended."""
        waits = [asyncio.ensure_future(process.wait()) for process in self._processes.values()]
        if not waits:
            return True
        _, pending = await asyncio.wait(waits, timeout=timeout_s)
        for process in pending:
            process.cancel()
        return not pending

    async def close(self) -> None:
        """End the remaining workers, by force if necessary."""
        self.cut()
        if not await self.ended(_KILL_AFTER_S):
            for number in list(self._processes):
                self._kill(number)
            await self.ended(_KILL_AFTER_S)
        for task in self._keeping:
            task.cancel()
        await asyncio.gather(*self._keeping, return_exceptions=True)

    def _tell_all(self, message: messages.Message) -> None:
        for member in list(self._shared.members.values()):
            if member.link is not None:
                member.link.tell(message)

    def _kill(self, number: int) -> None:
        process = self._processes.get(number)
        if process is not None and process.returncode is None:
            process.kill()

    async def _start(self, number: int) -> Member:
        """Start a worker. Raises WorkersFailedError."""
        listening = self._sockets[number]
        host, port = listening.getsockname()[:2]
        process, ours = await spawn(listening)
        self._processes[number] = process
        text = self._text
        member = Member(number, process.pid, self._shared)
        link = member.link = await Link.open(ours, member)
        self._shared.members[number] = member
        link.tell(messages.Start(str(self._path), text, host, port, number, len(self._sockets)))
        if self._shared.ending:  # began to end meanwhile
            link.tell(messages.Drain())
        try:
            async with asyncio.timeout(_START_S):
                await member.serves
        except TimeoutError:
            process.kill()
            raise WorkersFailedError(
                f"worker {number} did not start within {_START_S:g} s"
            ) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                process.kill()
                raise
            code = await process.wait()
            raise WorkersFailedError(
                f"worker {number} ended before it served: {described(code)}"
            ) from None
        if text is not self._text and (problem := await self._renew(member)):
            process.kill()
            raise WorkersFailedError(f"worker {number} rejected the file: {problem}")
        return member

    async def _renew(self, member: Member) -> str:
        """Give a worker the configuration that was read while it started."""
        async with self._reloading:
            return await _asked(member, messages.Prepare(self._text)) or await _asked(
                member, messages.Take()
            )

    async def _keep(self, member: Member) -> None:
        number, in_a_row = member.number, 0
        served_s = self._clock_s()
        while True:
            code = await self._processes[number].wait()
            if self._shared.ending:
                return
            why = described(code)
            in_a_row = 1 if self._clock_s() - served_s >= _YOUNG_S else in_a_row + 1
            while True:
                if in_a_row > _MOST_IN_A_ROW:
                    self._fail(f"worker {number} ended {in_a_row} times in a row, last with {why}")
                    return
                wait_s = _wait_s(in_a_row)
                logger.error(
                    "worker %d ended with %s; another is started in %.1f s", number, why, wait_s
                )
                await self._sleep(wait_s)
                if self._shared.ending:
                    return
                self._shared.replaced += 1
                try:
                    await self._start(number)
                except (WorkersFailedError, OSError) as error:
                    in_a_row, why = in_a_row + 1, str(error)
                    continue
                break
            served_s = self._clock_s()
            logger.warning("worker %d is serving again", number)

    def _fail(self, why: str) -> None:
        if not self.failed.done():
            self.failed.set_exception(WorkersFailedError(f"{why}; the log has the cause"))


def _wait_s(in_a_row: int) -> float:
    """The delay before a successor; the first one starts at once."""
    if in_a_row <= 1:
        return 0.0
    return min(_MOST_WAIT_S, _FIRST_WAIT_S * 2.0 ** (in_a_row - 2))


async def _asked(member: Member, message: messages.Message) -> str:
    """The problem with a request, "" if it succeeded or the worker has ended meanwhile."""
    if member.link is None:
        return ""
    try:
        answer = await member.link.ask(message, _RELOAD_S)
    except (LinkLostError, TooLongError) as error:
        return "" if member.link.lost else f"worker {member.number}: {error}"
    return answer.problem if isinstance(answer, messages.Done) else "it gave an unexpected answer"
