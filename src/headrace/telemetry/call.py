"""One HTTP call as it is told of later: in log lines, in the request log, as a span.

The call that runs is found through a context variable, so that whatever logs on its behalf, in
whatever task of it, carries its id. Outside of a call there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass
class Timeline:
    """One request in the engine, from its arrival at the server; filled in as it goes on.

    Times are seconds of the server's clock; queue_s and prefill_s are the engine's own. Each choice
    of a prompt is a request of its own: prompt_index says of which prompt, n of how many choices.
    text: what was said, kept only where the request log is to have it (keep_text).
    """

    arrival_s: float
    prompt_tokens: int
    max_tokens: int
    request_id: str = ""
    prompt_token_ids: Sequence[int] = ()
    prompt_index: int = 0
    n: int = 1
    temperature: float | None = None
    top_p: float | None = None
    started_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float = 0.0
    ended_s: float | None = None
    generated_tokens: int = 0
    cached_tokens: int = 0
    num_preemptions: int = 0
    queue_s: float = 0.0
    prefill_s: float = 0.0
    reason: str | None = None
    keep_text: bool = False
    text: list[str] = field(default_factory=list)


@dataclass
class CallRecord:
    """The record of a call. Seconds are of the server's clock, `began_ns` is Unix time."""

    request_id: str
    endpoint: str
    arrival_s: float
    began_ns: int = 0
    client_id: str = ""
    """What the client sent as X-Request-Id."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of the request, for the trace it belongs to."""
    status: int | None = None
    """None until a reply begins."""
    stream: bool = False
    keep_text: bool = False
    """Whether the log is to have texts."""
    timelines: list[Timeline] = field(default_factory=list)
    decode: Callable[[Sequence[int]], str] | None = None

    @property
    def prompts(self) -> dict[int, list[Timeline]]:
        """The requests of each prompt, by its index."""
        groups: dict[int, list[Timeline]] = {}
        for timeline in self.timelines:
            groups.setdefault(timeline.prompt_index, []).append(timeline)
        return groups


_current: ContextVar[CallRecord | None] = ContextVar("headrace_call", default=None)


def current_call() -> CallRecord | None:
    """The call that runs here, if one does."""
    return _current.get()


@contextmanager
def as_current(record: CallRecord) -> Iterator[CallRecord]:
    """While it is open, `record` is the current call of this task and those it starts."""
    token = _current.set(record)
    try:
        yield record
    finally:
        _current.reset(token)


def name_call(request_id: str) -> None:
    """Say which id the current call has, as soon as that is known; does nothing outside of one."""
    record = _current.get()
    if record is not None:
        record.request_id = request_id
