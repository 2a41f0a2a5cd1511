"""The engine's process: how it is started, and what its exit code says."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec

import headrace
from headrace.config.flags import flags_of
from headrace.config.server_settings import ServerConfig
from headrace.config.settings import EngineConfig
from headrace.telemetry.logs import configured_format

_SECRETS = frozenset(flag.env for flag in flags_of(ServerConfig) if flag.secret)


def spawn(config: EngineConfig, link: socket.socket) -> subprocess.Popen[bytes]:
    """The engine process, its config written to its stdin.

    A session of its own keeps Ctrl-C in a terminal from reaching it: the parent decides. Its
    stdout is ours no longer, so that what a command prints is only what it prints.
    """
    descriptor = link.fileno()
    # Keys of clients are the server's alone.
    environment = {name: text for name, text in os.environ.items() if name not in _SECRETS}
    # The engine has to be of the very package that this client is of.
    package_root = str(Path(headrace.__file__).resolve().parent.parent)
    paths = [package_root, environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    arguments = ["--link-fd", str(descriptor), "--started-s", str(time.monotonic())]
    arguments += ["--log-format", configured_format()]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "headrace.engine.process", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        pass_fds=(descriptor,),
        env=environment,
        start_new_session=True,
    )
    assert process.stdin is not None
    try:
        with process.stdin as stdin:
            stdin.write(msgspec.json.encode(config))
    except BrokenPipeError:
        pass  # it ended already; the link says so
    return process


def describe_exit(code: int) -> str:
    """An exit code as people read it: negative is the signal that ended the process."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"exit code {code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"exit code {code}"
