"""Grammars of requests, compiled once before the engine sees them, so that a bad one is a 400.

Compiling is bounded (`structured.limits`) and takes up to some tens of milliseconds, so it is done
by a worker thread; what became of a grammar once is known by its content, a refusal too: an agent
sends its tools with every turn.

Schemas of tools are compiled alone before a grammar has them in it, so that one that cannot be held
and need not be leaves its tool free; that is known by content too.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Container
from typing import NamedTuple

from headrace.errors import RequestError
from headrace.structured.grammar import Grammar
from headrace.structured.limits import NO_TEXT

MAX_KNOWN = 2048
"""Grammars that are remembered, those used last: more than a request has tools."""

MAX_KNOWN_BYTES = 1 << 22
"""Of the texts of those."""


class _Refusal(NamedTuple):
    """The reason that a grammar did not compile, whatever field it comes from."""

    why: str
    """The error's text behind the field's name."""
    within: str
    """The place within the field that the error names, such as "[3]"."""
    code: str | None

    def error(self, param: str) -> RequestError:
        """Of the field of a request."""
        return RequestError(param + self.why, param=param + self.within, code=self.code)


class GrammarChecks:
    """Grammars that compiled, and those that did not. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[Grammar, _Refusal | None] = OrderedDict()
        """The reason that each did not compile; None where it did."""
        self._num_bytes = 0

    def check(self, grammar: Grammar, param: str) -> None:
        """Raise RequestError, naming `param`, where no answer could be held to a grammar."""
        refusal = self._refusal(grammar)
        if refusal is not None:
            raise refusal.error(param)

    def compiles(self, grammar: Grammar, param: str, codes: Container[str]) -> bool:
        """Whether answers can be held to a grammar; as `check` where they cannot for a reason whose
        code is none of these."""
        refusal = self._refusal(grammar)
        if refusal is not None and (refusal.code is None or refusal.code not in codes):
            raise refusal.error(param)
        return refusal is None

    def has_text(self, grammar: Grammar) -> bool:
        """Whether any text belongs to a grammar; True where that is not known."""
        refusal = self._refusal(grammar)
        return refusal is None or NO_TEXT not in refusal.why

    def _refusal(self, grammar: Grammar) -> _Refusal | None:
        """The reason that a grammar does not compile, found out where it is not known; None where
        it does."""
        with self._lock:
            if grammar in self._known:
                self._known.move_to_end(grammar)
                return self._known[grammar]
        from headrace.structured.validity import validate

        refusal = None
        try:
            validate(grammar, param="")
        except RequestError as error:
            refusal = _Refusal(str(error), error.param or "", error.code)
        self._remember(grammar, refusal)
        return refusal

    def _remember(self, grammar: Grammar, refusal: _Refusal | None) -> None:
        with self._lock:
            if grammar in self._known:
                return
            self._known[grammar] = refusal
            self._num_bytes += len(grammar.text)
            while len(self._known) > MAX_KNOWN or self._num_bytes > MAX_KNOWN_BYTES:
                forgotten, _ = self._known.popitem(last=False)
                self._num_bytes -= len(forgotten.text)
