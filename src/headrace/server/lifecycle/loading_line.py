"""How far loading or ending is, as one line of a terminal, written over and wiped at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from headrace.engine.messages import Loading

# The one phase whose share is known (EngineInfo.phases_s).
WEIGHTS = "weights"

_BACK_AND_WIPE = "\r\x1b[2K"


class LoadingLine:
    """A progress line on `stream` if that is a terminal; nothing anywhere else.

    stream: None where the process was started without one.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._terminal = stream if stream is not None and stream.isatty() else None
        self._shown = False

    def show(self, at: Loading) -> None:
        """Say the phase, and how far the weights are while they are loaded."""
        share = ""
        if at.total and at.phase == WEIGHTS:
            share = f" {at.progress:4.0%} of {at.total / 1e9:.2f} GB"
        self.say(f"loading: {at.phase}{share}")

    def say(self, text: str) -> None:
        """Write over what was said before."""
        self._write(f"{_BACK_AND_WIPE}{text}")
        self._shown = True

    def wipe(self) -> None:
        """Leave the line as if nothing had been written; nothing where nothing was."""
        if self._shown:
            self._write(_BACK_AND_WIPE)
            self._shown = False

    def _write(self, text: str) -> None:
        if self._terminal is not None:
            self._terminal.write(text)
            self._terminal.flush()
