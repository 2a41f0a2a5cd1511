"""The engine's process: how it is started, and what its exit code says.

It can be started before it is known what it is to serve, and imports meanwhile what every engine
needs; nothing that takes long is imported here, so that this comes before everything else.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import headrace

if TYPE_CHECKING:
    from headrace.config.settings import EngineConfig
    from headrace.telemetry.logs import LogFormat

KEYS = frozenset({"HEADRACE_API_KEY", "HEADRACE_ADMIN_API_KEY"})
"""Variables of `ServerConfig`'s secrets: keys of clients are the server's alone."""

ABANDONED_S = 5.0
"""How long one that is not needed may take to see that its link is closed."""


class EngineProcess:
    """An engine's process and our end of its link.

    It waits until `configure` tells it what to serve, and ends when the link does.
    """

    def __init__(self, process: subprocess.Popen[bytes], link: socket.socket) -> None:
        self.process = process
        self._link: socket.socket | None = link
        self._configured = False

    @classmethod
    def launch(cls) -> EngineProcess:
        """Start one.

        A session of its own keeps Ctrl-C in a terminal from reaching it: the parent decides. Its
        stdout is ours no longer, so that what a command prints is only what it prints.
        """
        environment = {name: text for name, text in os.environ.items() if name not in KEYS}
        # The engine has to be of the very package that this client is of.
        package_root = str(Path(headrace.__file__).resolve().parent.parent)
        paths = [package_root, environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        ours, theirs = socket.socketpair()
        with theirs:
            arguments = ["--link-fd", str(theirs.fileno()), "--started-s", str(time.monotonic())]
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "headrace.engine.process", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=environment,
                start_new_session=True,
            )
        return cls(process, ours)

    def configure(self, config: EngineConfig, log_format: LogFormat) -> None:
        """Tell it what to serve and how to write its log; does nothing where it was told."""
        if self._configured:
            return
        self._configured = True
        import msgspec

        from headrace.engine.messages import Start

        stdin = self.process.stdin
        assert stdin is not None
        try:
            with stdin:
                config_json = msgspec.Raw(msgspec.json.encode(config))
                stdin.write(msgspec.json.encode(Start(config_json, log_format)))
        except BrokenPipeError:
            pass  # it ended already; the link says so

    def take_link(self) -> socket.socket:
        """Our end of the link, once: whoever has it ends the process by closing it."""
        link, self._link = self._link, None
        if link is None:
            raise ValueError("somebody else speaks with this process already")
        return link

    def abandon(self) -> None:
        """End it, unless somebody took the link. Idempotent."""
        if self._link is None:
            return
        self.take_link().close()
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(ABANDONED_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def describe_exit(code: int) -> str:
    """An exit code as people read it: negative is the signal that ended the process."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"exit code {code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"exit code {code}"
