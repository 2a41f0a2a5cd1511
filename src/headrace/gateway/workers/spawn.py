"""A worker's process and its two sockets.

It is a new interpreter and not a fork: the parent has threads (its SQLite writers) and a loop, of
which a fork would have dead copies.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import headrace

_MODULE = "headrace.gateway.workers.process"


async def spawn(listening: socket.socket) -> tuple[asyncio.subprocess.Process, socket.socket]:
    """Start a worker; return its process and the parent's end of its link.

    A separate session keeps Ctrl-C in a terminal from reaching it: the parent decides.
    """
    ours, theirs = socket.socketpair()
    environment = dict(os.environ)
    # The worker must use the same package as the parent.
    package_root = str(Path(headrace.__file__).resolve().parent.parent)
    paths = [package_root, environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    descriptors = theirs.fileno(), listening.fileno()
    with theirs:
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", _MODULE,
                "--link-fd", str(descriptors[0]), "--listen-fd", str(descriptors[1]),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                pass_fds=descriptors,
                env=environment,
                start_new_session=True,
            )  # fmt: skip
        except BaseException:
            ours.close()
            raise
    return process, ours


def described(code: int | None) -> str:
    """An exit status for people to read; a negative one is the signal that ended the process."""
    if code is None or code >= 0:
        return f"exit status {code}"
    try:
        return f"exit status {code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"exit status {code}"
