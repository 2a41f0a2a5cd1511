"""Grammars of requests, compiled once before the engine sees them, so that a bad one is a 400.

Compiling is bounded (`structured.limits`) and takes up to some tens of milliseconds, so it is done
by a worker thread; what was compiled once is known by its content.

Schemas of tools are compiled alone before a grammar has them in it, so that one that cannot be held
and need not be leaves its tool free; that is known by content too.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Container

from headrace.errors import RequestError
from headrace.structured.grammar import Grammar

MAX_KNOWN = 2048
"""Grammars that are remembered, those used last: more than a request has tools."""

MAX_KNOWN_BYTES = 1 << 22
"""Of the texts of those."""


class GrammarChecks:
    """Grammars that compiled, and those that did not but need not. Safe to use from several
    threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[Grammar, str] = OrderedDict()
        """The code of why each did not compile; "" where it did."""
        self._num_bytes = 0

    def check(self, grammar: Grammar, param: str) -> None:
        """Raise RequestError, naming `param`, where no answer could be held to a grammar."""
        if self._recalled(grammar) == "":
            return
        from headrace.structured.compile import validate

        validate(grammar, param=param)
        self._remember(grammar, "")

    def compiles(self, grammar: Grammar, param: str, codes: Container[str]) -> bool:
        """Whether answers can be held to a grammar; as `check` where they cannot for a reason whose
        code is none of these."""
        known = self._recalled(grammar)
        if known and known in codes:
            return False
        try:
            self.check(grammar, param)
        except RequestError as error:
            if error.code is None or error.code not in codes:
                raise
            self._remember(grammar, error.code)
            return False
        return True

    def _recalled(self, grammar: Grammar) -> str | None:
        """The code of why a grammar did not compile, "" if it did; None where that is not known."""
        with self._lock:
            if grammar in self._known:
                self._known.move_to_end(grammar)
            return self._known.get(grammar)

    def _remember(self, grammar: Grammar, code: str) -> None:
        with self._lock:
            if grammar in self._known:
                return
            self._known[grammar] = code
            self._num_bytes += len(grammar.text)
            while len(self._known) > MAX_KNOWN or self._num_bytes > MAX_KNOWN_BYTES:
                forgotten, _ = self._known.popitem(last=False)
                self._num_bytes -= len(forgotten.text)
