"""Figures that are measured one by one into a JSON file, each of which may fail without the others.

What raises is entered as failed, and the next one begins. What ends its process, as an error does
after which a device answers nothing, or does not come to an end in time, is entered by the process
that started it, which then starts another for the rest. What the file has is not measured again, so
that a machine that is lent for minutes can be used in calls that go on where the last one was.
"""

from __future__ import annotations

import json
import subprocess
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headrace.atomic_file import atomic_file

Keys = tuple[str, ...]
"""Where a figure is in the file."""

FAILED, BEGUN = "failed", "begun"
GRACE_S = 60.0
"""What a figure may take beyond the time in which none begins any more; then its process ends."""
REPORT_LINES, REPORT_CHARACTERS = 12, 2000
"""Of an error, from its end."""


class Figures:
    """The file. ends_s: by time.monotonic; nothing is begun after it."""

    def __init__(
        self,
        path: Path,
        ends_s: float,
        *,
        is_fatal: Callable[[Exception], bool] = lambda error: False,
        tidy: Callable[[], None] = lambda: None,
    ) -> None:
        """is_fatal: whether nothing can be measured any more in this process. tidy: called behind
        each figure that failed."""
        self._path = path
        self._ends_s = ends_s
        self._is_fatal = is_fatal
        self._tidy = tidy
        self.found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    @property
    def is_late(self) -> bool:
        """Whether nothing more is begun."""
        return time.monotonic() > self._ends_s

    def get(self, *keys: str) -> Any:
        """What was entered there; None for nothing and for what failed."""
        value = self._at(keys)
        return None if value is None or has_failed(value) else value

    def has(self, *keys: str) -> bool:
        """Whether it was measured, or failed."""
        return self._at(keys) is not None

    def measure(self, keys: Keys, run: Callable[[], Any]) -> bool:
        """Enter what `run` gives, or how it failed; False where it failed, now or before, or was
        not begun. Raises what ends this process, which it leaves entered as begun."""
        if self.has(*keys):
            return self.get(*keys) is not None
        if self.is_late:
            return False
        self.found[BEGUN] = list(keys)
        self.save()
        began_s = time.monotonic()
        try:
            value = run()
        except Exception as error:
            print(f"{' '.join(keys)}: failed: {error}", flush=True)
            if self._is_fatal(error):
                raise
            value = {FAILED: _report(error)}
            traceback.clear_frames(error.__traceback__)
        seconds = time.monotonic() - began_s
        self.enter(keys, value)
        if has_failed(value):
            self._tidy()
            return False
        print(f"{' '.join(keys)}: {_short(value)} ({seconds:.1f} s)", flush=True)
        return True

    def enter(self, keys: Keys, value: Any) -> None:
        """Put it there, in place of what is."""
        *folders, last = keys
        at = self.found
        for folder in folders:
            at = at.setdefault(folder, {})
        at[last] = value
        self.found.pop(BEGUN, None)
        self.save()

    def forget_failed(self) -> None:
        """Have what failed measured again."""
        _forget_failed(self.found)
        self.save()

    def save(self) -> None:
        """To the file, as a whole."""
        with atomic_file(self._path) as file:
            file.write(json.dumps(self.found, indent=1).encode() + b"\n")

    def _at(self, keys: Sequence[str]) -> Any:
        at: Any = self.found
        for key in keys:
            at = at.get(key) if isinstance(at, dict) else None
        return at


def has_failed(value: Any) -> bool:
    """Whether this is entered in place of a figure."""
    return isinstance(value, dict) and FAILED in value


def run_apart(command: Sequence[str], path: Path, log: Path, ends_s: float) -> None:
    """Run a command that measures into the file, again and again until nothing ends it.

    Of what it is at when it ends badly the file says so. What it prints about errors goes to `log`.
    Raises SystemExit where it is at nothing.
    """
    while True:
        with log.open("ab") as errors:
            process = subprocess.Popen(command, stderr=errors)
            try:
                status = process.wait(max(1.0, ends_s + GRACE_S - time.monotonic()))
                why = f"its process ended with {status}"
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                why, status = "it did not come to an end in time", None
        if status == 0:
            return
        figures = Figures(path, ends_s)
        begun = figures.found.get(BEGUN)
        last = "\n".join(log.read_text(errors="replace").splitlines()[-REPORT_LINES:])
        if begun is None:
            raise SystemExit(f"{why}, at nothing that is measured:\n{last}")
        print(f"{' '.join(begun)}: {why}", flush=True)
        figures.enter(tuple(begun), {FAILED: f"{why}:\n{last}"[-REPORT_CHARACTERS:]})
        if status is None or figures.is_late:
            return


def _report(error: Exception) -> str:
    lines = "".join(traceback.format_exception(error)).splitlines()
    return "\n".join(lines[-REPORT_LINES:])[-REPORT_CHARACTERS:]


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        known = {name: each for name, each in value.items() if isinstance(each, int | float | str)}
        return ", ".join(f"{name} {_short(each)}" for name, each in known.items())[:200]
    return str(value)[:200]


def _forget_failed(at: dict[str, Any]) -> None:
    for key, value in list(at.items()):
        if has_failed(value):
            del at[key]
        elif isinstance(value, dict):
            _forget_failed(value)
