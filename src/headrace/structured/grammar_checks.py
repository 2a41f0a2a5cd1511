"""Grammars of requests, compiled once before the engine sees them, so that a bad one is a 400.

Compiling is bounded (`structured.limits`) and takes up to some tens of milliseconds, so it is done
by a worker thread; what was compiled once is known by its content.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from headrace.structured.grammar import Grammar

MAX_KNOWN = 256
"""Grammars that are remembered, those used last."""

MAX_KNOWN_BYTES = 1 << 22
"""Of the texts of those."""


class GrammarChecks:
    """Grammars that compiled. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[Grammar, None] = OrderedDict()
        self._num_bytes = 0

    def check(self, grammar: Grammar, param: str) -> None:
        """Raise RequestError, naming `param`, where no answer could be held to a grammar."""
        with self._lock:
            if grammar in self._known:
                self._known.move_to_end(grammar)
                return
        from headrace.structured.compile import validate

        validate(grammar, param=param)
        with self._lock:
            if grammar in self._known:
                return
            self._known[grammar] = None
            self._num_bytes += len(grammar.text)
            while len(self._known) > MAX_KNOWN or self._num_bytes > MAX_KNOWN_BYTES:
                forgotten, _ = self._known.popitem(last=False)
                self._num_bytes -= len(forgotten.text)
