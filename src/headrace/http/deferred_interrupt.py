"""Ctrl-C behind what may not be left half done, never within it.

KeyboardInterrupt comes at any bytecode. In the middle of an engine's step it would leave a
scheduler that has planned what nobody computed, and the next call would go on from there; while an
event loop closes, threads that report to a loop that is gone.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class DeferredInterrupt:
    """A context in which SIGINT waits; it is raised as KeyboardInterrupt when the block ends.

    Elsewhere than in the main thread, or where SIGINT is handled by the program in its own way,
    nothing is changed.
    """

    def __init__(self) -> None:
        self._deferring = False
        self._arrived = False

    def __enter__(self) -> None:
        self._deferring = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        if self._deferring:
            signal.signal(signal.SIGINT, self._note)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._deferring:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._arrived:
            raise KeyboardInterrupt

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._arrived = True
