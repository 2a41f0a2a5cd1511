"""The grammars of an engine's requests: compiled beside its steps, and kept by their content.

The first grammar brings the model's vocabulary; until then nothing here imports or holds anything.
A thread compiles, so that a grammar that takes its time delays no step of other requests.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from headrace.engine.grammars.constraint import Constraint
from headrace.engine.grammars.pace import Pace
from headrace.errors import HeadraceError, RequestError
from headrace.structured.grammar import Grammar

if TYPE_CHECKING:
    from headrace.engine.request import Request
    from headrace.structured.compile import CompiledGrammar, GrammarTokenizer
    from headrace.structured.vocabulary import Vocabulary

MAX_KEPT = 64
"""Compiled grammars that are kept, those used last; a schema of an application takes about 1 MB."""

MAX_KEPT_BYTES = 1 << 21
"""Of the texts of grammars that are kept: what is compiled from a large one is large as well."""

IDLE_WAIT_S = 0.01
"""How long a step waits for a grammar where there is nothing else to do."""


class Grammars:
    """Compiled grammars, and the requests that wait for theirs. Used from one thread."""

    def __init__(
        self,
        vocabulary: Callable[[], Vocabulary] | None,
        *,
        vocab_size: int,
        num_tokens: int,
    ) -> None:
        """vocabulary: called once, in another thread, when the first grammar comes; None for a
        model without text. vocab_size: the width of logits. num_tokens: ids below it are drawn."""
        self._vocabulary = vocabulary
        self._vocab_size = vocab_size
        self._num_tokens = num_tokens
        self._thread: ThreadPoolExecutor | None = None
        self._tokenizer: GrammarTokenizer | None = None
        self._kept: OrderedDict[Grammar, Future[CompiledGrammar]] = OrderedDict()
        self._paces: dict[Grammar, Pace] = {}
        """Of those that are kept, also while they are compiled again."""
        self._waiting: dict[Request, Future[CompiledGrammar]] = {}

    @property
    def num_waiting(self) -> int:
        """Requests whose grammar is not compiled yet."""
        return len(self._waiting)

    @property
    def waiting(self) -> Collection[Request]:
        """Those requests."""
        return self._waiting.keys()

    def add(self, request: Request, grammar: Grammar) -> bool:
        """Give a request the constraint of its grammar; whether it has it. If not, it waits, and
        `compiled` gives it. RequestError where the model has no text."""
        if self._vocabulary is None:
            raise RequestError(
                "grammar: this model has no tokenizer, so its ids have no text; omit it, or put a "
                "tokenizer.json beside the weights",
                param="grammar",
                code="no_tokenizer",
            )
        future = self._future(grammar)
        if future.done() and future.exception() is None:
            self._constrain(request, future.result())
            return True
        self._waiting[request] = future
        return False

    def remove(self, request: Request) -> None:
        """Forget a request that may be waiting."""
        self._waiting.pop(request, None)

    def compiled(self, *, idle: bool) -> Iterable[tuple[Request, HeadraceError | None]]:
        """Requests that wait no longer, in their order, with the error where there is one.

        idle: nothing else is to be done, so that some time may be spent on waiting.
        """
        if idle:
            wait(set(self._waiting.values()), IDLE_WAIT_S, FIRST_COMPLETED)
        done = [request for request, future in self._waiting.items() if future.done()]
        return [(request, self._settle(request, self._waiting.pop(request))) for request in done]

    def _settle(self, request: Request, future: Future[CompiledGrammar]) -> HeadraceError | None:
        # Not raised, since each time would add to the trace of one that is kept.
        error = future.exception()
        if error is None:
            self._constrain(request, future.result())
            return None
        if isinstance(error, HeadraceError):
            return error
        # A fault of compiling ends this request and no other.
        return HeadraceError(f"{type(error).__name__} in the engine: {error}")

    def _constrain(self, request: Request, compiled: CompiledGrammar) -> None:
        assert self._tokenizer is not None, "it was compiled with it"
        assert request.params.grammar is not None, "it waited for it"
        request.constraint = Constraint(
            compiled,
            num_prompt=request.num_prompt,
            grammar_end_id=self._tokenizer.end_id,
            vocab_size=self._vocab_size,
            end_ids=[each for each in request.end_ids if each < self._num_tokens],
            pace=self._paces.get(request.params.grammar),
        )

    def _future(self, grammar: Grammar) -> Future[CompiledGrammar]:
        kept = self._kept
        future = kept.get(grammar)
        if future is not None and future.done() and not _is_usable(future):
            future = None
        if future is None:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="grammars")
            pace = self._paces.setdefault(grammar, Pace())
            future = self._thread.submit(self._compile, grammar, pace)
            kept[grammar] = future
        kept.move_to_end(grammar)
        while len(kept) > 1 and self._keeps_too_much():
            let_go, _ = kept.popitem(last=False)
            del self._paces[let_go]
        return future

    def _keeps_too_much(self) -> bool:
        size = sum(len(grammar.text) for grammar in self._kept)
        return len(self._kept) > MAX_KEPT or size > MAX_KEPT_BYTES

    def _compile(self, grammar: Grammar, pace: Pace) -> CompiledGrammar:
        """In the thread that compiles, one after another."""
        from headrace.structured.compile import GrammarTokenizer, compile_grammar

        if self._tokenizer is None:
            assert self._vocabulary is not None
            self._tokenizer = GrammarTokenizer(self._vocabulary())
        begun_s = time.perf_counter()
        compiled = compile_grammar(grammar, self._tokenizer)
        pace.compiled(time.perf_counter() - begun_s)
        return compiled


def _is_usable(done: Future[CompiledGrammar]) -> bool:
    """Whether it is what compiling again would come to: not an error that may be over, as the
    vocabulary's file being away, nor a grammar that is full, of which no answer can be written."""
    error = done.exception()
    if error is None:
        return not done.result().is_full
    return isinstance(error, RequestError)
