"""Servers that a comparison has started end with it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

SERVER = """#!{python}
import os, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer
open({place!r}, "w").write(str(os.getpid()))
if {silent}:
    time.sleep(600)

class Health(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *said):
        pass

port = int(sys.argv[sys.argv.index("--port") + 1])
HTTPServer(("127.0.0.1", port), Health).serve_forever()
"""
OWNER = """
import sys, time
from pathlib import Path
from benchmarks.llamacpp.server import servers, start_server, stop_server
with servers() as stack:
    process, _ = start_server(sys.argv[1], Path("model.gguf"), [])
    stack.callback(stop_server, process)
    print("ready", flush=True)
    time.sleep(600)
"""


def is_running(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.process
@pytest.mark.parametrize("silent", [False, True])
def test_a_server_ends_with_the_process_that_is_told_to_end(silent: bool, tmp_path: Path) -> None:
    program, place = tmp_path / "server", tmp_path / "number"
    program.write_text(SERVER.format(python=sys.executable, place=str(place), silent=silent))
    program.chmod(0o700)
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(program)], cwd=ROOT, stdout=subprocess.PIPE
    )
    try:
        deadline = time.monotonic() + 60
        while not (place.exists() and place.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        number = int(place.read_text())
        if not silent:
            assert owner.stdout is not None and owner.stdout.readline() == b"ready\n"
        owner.send_signal(signal.SIGTERM)
        assert owner.wait(60) == 128 + signal.SIGTERM
        assert not is_running(number)
    finally:
        owner.kill()
        owner.wait()
