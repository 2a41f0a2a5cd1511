"""What slow grammars allow, found beside the steps while others go on.

A request whose grammar is slow (engine/grammars/pace.py) sits out until it is known what its next
token may be: it has no row in a step, keeps its place and its blocks, and what it may write is the
same, since that is a function of its tokens. Its tokens do not change meanwhile, so that preempting
it changes nothing either. While it sits out its constraint is the thread's; a request that ends is
forgotten here, and the thread's answer with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, NamedTuple

from headrace.engine.grammars.constraint import Look
from headrace.structured.give_way import give_way

if TYPE_CHECKING:
    from llguidance import LLMatcher

    from headrace.engine.request import Request

GRACE_SHARE = 0.25
"""Of the last step, for which the next one waits for what was begun after it: a mask that takes a
few milliseconds costs the steps of a large model little, and its request no step."""


class Reader:
    """A reader of tokens that lets other threads run meanwhile.

    Of llguidance's calls those that read a token keep the interpreter's lock, up to a third of a
    second of one that is made to do harm, but for the call for several matchers at once. So there
    is a second one here, which refuses every token.
    """

    def __init__(self) -> None:
        """In the thread that uses it, since the one that reads gives way as that does."""
        from llguidance import LLExecutor, LLMatcher, LLTokenizer

        self._executor = LLExecutor(1)
        self._refusing = LLMatcher(
            LLTokenizer("byte"), LLMatcher.grammar_from_regex("a"), log_level=0
        )

    def read(self, matcher: LLMatcher, token_id: int) -> bool:
        """What `LLMatcher.consume_token` does."""
        taken, _ = self._executor.consume_token_par([(matcher, token_id), (self._refusing, 0)])
        return taken


class _Found(NamedTuple):
    look: Look
    spent_s: float
    """Seconds of the processor, without those of reading tokens."""


class Beside:
    """The requests that sit out, and the thread that asks their grammars. Used from one thread."""

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._thread: ThreadPoolExecutor | None = None
        self._reader: Reader | None = None
        """The thread's."""
        self._asking: dict[Request, Future[_Found]] = {}
        self._is_new = False
        """Whether one of them was begun since the last `settle`."""

    @property
    def num_asking(self) -> int:
        """Requests that sit out."""
        return len(self._asking)

    def begin(self, request: Request) -> None:
        """Ask what may come next of a request that sits out, unless that is being questioned."""
        if request in self._asking:
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(
                1, thread_name_prefix="slow-grammars", initializer=give_way
            )
        assert request.constraint is not None, "it has a grammar"
        request.constraint.is_lent = True
        self._asking[request] = self._thread.submit(self._find, request)
        self._is_new = True

    def remove(self, request: Request) -> None:
        """Forget a request that may be sitting out."""
        future = self._asking.pop(request, None)
        if future is not None:
            future.cancel()

    def settle(self, last_step_s: float) -> list[tuple[Request, Look]]:
        """Requests that sit out no longer, in the order in which they were begun.

        last_step_s: what a step took, for waiting within a share of it where that is new.
        """
        if self._is_new:
            self._is_new = False
            self.wait(GRACE_SHARE * last_step_s)
        done = [request for request, future in self._asking.items() if future.done()]
        return [(request, self._settled(request)) for request in done]

    def wait(self, most_s: float) -> None:
        """Wait until one of them sits out no longer."""
        wait(set(self._asking.values()), most_s, FIRST_COMPLETED)

    def _settled(self, request: Request) -> Look:
        look, spent_s = self._asking.pop(request).result()
        constraint = request.constraint
        assert constraint is not None, "it has a grammar"
        constraint.is_lent = False
        constraint.pace.enter(spent_s)
        constraint.keep(look, len(request.token_ids))
        return look

    def _find(self, request: Request) -> _Found:
        """In the thread; never raises."""
        constraint = request.constraint
        assert constraint is not None, "it has a grammar"
        begun_s = self._clock()
        try:
            self._reader = self._reader or Reader()
        except BaseException as error:  # a panic of Rust code is not an Exception
            constraint.fail(f"{type(error).__name__}: {error}")
            return _Found(constraint.look(request.token_ids), self._clock() - begun_s)
        constraint.reader.consume = self._reader.read
        if request.num_wanted < request.max_len:
            look = constraint.look(request.token_ids)
        else:  # nothing follows: what counts is whether the answer is whole
            look = Look(constraint.take_now(request.token_ids))
        constraint.reader.consume = None
        return _Found(look, self._clock() - begun_s)
