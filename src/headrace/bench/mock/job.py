"""One request in work: sends what its plan says, when it says so.

Every time is counted from the beginning of the work, so one late chunk does not delay the next.
A client that does not read delays its own stream only.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.bench.mock.connection import Connection, Received
from headrace.bench.mock.http import (
    HTML,
    LAST_PIECE,
    RECEIVED_HEADER,
    error_body,
    piece,
    stream_head,
    whole,
)
from headrace.bench.mock.plan import Plan, Step
from headrace.bench.mock.reply import (
    Facts,
    StreamText,
    embeddings_reply,
    whole_reply,
)
from headrace.bench.mock.request import Asked
from headrace.bench.mock.settings import MockSettings
from headrace.bench.timer import Deadline, Timer


class Job:
    """An answer to `received`; `on_end` is called at its end, with the fault, if any."""

    def __init__(
        self,
        connection: Connection,
        received: Received,
        asked: Asked,
        plan: Plan,
        facts: Callable[[int], Facts],
        settings: MockSettings,
        timer: Timer,
        clock_ns: Callable[[], int],
        on_end: Callable[[Job, str | None], None],
    ) -> None:
        self.asked = asked
        self.plan = plan
        self._connection = connection
        self._received = received
        self._facts = facts
        self._settings = settings
        self._timer = timer
        self._clock_ns = clock_ns
        self._on_end = on_end
        self._position = 0
        self._begun_ns = 0
        self._blocked = False
        self._deadline: Deadline | None = None

    def start(self, begun_ns: int) -> None:
        """Begin the work: times count from now."""
        self._begun_ns = begun_ns
        told = self._facts(begun_ns - self._received.received_ns)
        if self.asked.stream:
            self._text = StreamText(self.asked, self.plan, told, self._settings.reasoning_field)
            self._head = stream_head(
                self._received.received_ns,
                chunked=self._received.chunked,
                keep_alive=self._received.keep_alive,
            )
            self._wait(self.plan.steps[0].offset_ns, self._due)
        elif self.plan.fault != "endless":  # without a stream that is no answer at all
            self._wait(self.plan.end_ns, lambda: self._answer(told))

    def cancel(self) -> None:
        """The client is gone."""
        self._end("cancelled")

    def resume(self) -> None:
        """The client takes bytes again."""
        if self._blocked:
            self._blocked = False
            self._due()

    def _wait(self, offset_ns: int, callback: Callable[[], None]) -> None:
        self._deadline = self._timer.call_at_ns(self._begun_ns + offset_ns, callback)

    def _end(self, fault: str | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._on_end(self, fault)

    def _due(self) -> None:
        if self._connection.paused:
            self._blocked = True
            return
        plan, position = self.plan, self._position
        if plan.fault is not None and position >= plan.fault_step and self._strike(plan.fault):
            return
        self._position += 1
        if position < len(plan.steps):
            self._send(self._text.event(plan.steps[position], self._clock_ns()))
            if self._position < len(plan.steps):
                self._wait(plan.steps[self._position].offset_ns, self._due)
            elif plan.fault == "endless":
                self._wait(plan.end_ns + plan.gap_ns, self._due)
            else:
                self._finish()
        else:
            beyond = position - len(plan.steps)
            step = Step(0, "text", plan.output_tokens + beyond, 1)
            self._send(self._text.event(step, self._clock_ns()))
            self._wait(plan.end_ns + (beyond + 2) * plan.gap_ns, self._due)

    def _finish(self) -> None:
        if self.plan.fault is not None and self._strike(self.plan.fault):
            return
        self._send(self._text.ending(self._clock_ns(), self._begun_ns), last=True)
        self._connection.done(keep_alive=self._received.keep_alive)
        self._end(None)

    def _strike(self, fault: str) -> bool:
        """Let the fault happen; False for one that is not of a moment."""
        if fault == "endless":
            return False
        if fault == "error-event":
            self._send(self._text.error(self._clock_ns()), last=True)
            self._connection.done(keep_alive=self._received.keep_alive)
        elif fault == "truncated":
            self._connection.close()
        else:
            self._connection.reset()
        self._end(fault)
        return True

    def _send(self, events: bytes, *, last: bool = False) -> None:
        if self._received.chunked:
            events = piece(events) + (LAST_PIECE if last else b"")
        if self._head:
            events, self._head = self._head + events, b""
        self._connection.write(events)

    def _answer(self, told: Facts) -> None:
        """The whole reply at once, or what the fault makes of it."""
        now, fault, asked = self._clock_ns(), self.plan.fault, self.asked
        if asked.route == "embeddings":
            body = embeddings_reply(asked, asked.dimensions or self._settings.dimensions, now)
        else:
            body = whole_reply(asked, self.plan, told, self._settings.reasoning_field, now)
        keep_alive = self._received.keep_alive
        status = 200
        if fault == "error-event":
            status, body = 500, error_body(500, "the mock was configured to fail")
        stamp = {RECEIVED_HEADER: str(self._received.received_ns)}
        reply = whole(status, body, headers=stamp, keep_alive=keep_alive)
        if fault in ("truncated", "reset-inside"):
            self._connection.write(reply[: -len(body) // 2])
            self._strike(fault)
            return
        self._connection.write(reply)
        self._connection.done(keep_alive=keep_alive)
        self._end(fault)


def refuse(connection: Connection, received: Received, fault: str, retry_after_s: float) -> bool:
    """Answer at once with a fault that needs no work; False for one that strikes later."""
    if fault == "reset-before":
        connection.reset()
    elif fault == "html":
        html = "text/html; charset=utf-8"
        connection.write(whole(200, HTML, content_type=html, keep_alive=received.keep_alive))
        connection.done(keep_alive=received.keep_alive)
    elif fault.isdigit():
        answer_error(
            connection, received, int(fault), "the mock was configured to fail", retry_after_s
        )
    else:
        return False
    return True


def answer_error(
    connection: Connection,
    received: Received,
    status: int,
    message: str,
    retry_after_s: float | None = None,
    *,
    param: str | None = None,
) -> None:
    """An error as OpenAI writes it; 429 and 503 say when to come again."""
    headers = {}
    if retry_after_s is not None and status in (429, 503):
        headers["retry-after"] = f"{retry_after_s:g}"
    body = error_body(status, message, param=param)
    connection.write(whole(status, body, headers=headers, keep_alive=received.keep_alive))
    connection.done(keep_alive=received.keep_alive)
