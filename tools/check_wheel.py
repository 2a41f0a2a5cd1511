"""Installs a wheel in an environment of its own, without a compiler, and serves with it.

The environment is new and outside the repository; its PATH leads to its own programs alone, CC and
CXX to nothing, and packages are taken as wheels only, so nothing can be compiled. Then `headrace
--version` has to be the wheel's, `headrace serve` listens on a free port of 127.0.0.1 with the
embedded model, completes a prompt, and ends at SIGTERM. Prints what was seen; exits 1 naming what
was not. It needs a package index for what headrace depends on.
usage: python tools/check_wheel.py dist/headrace-….whl
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++", "cmake", "ninja", "make", "ld")
NOWHERE = "/nonexistent/compiler"
START_S = 120
"""Far more than a start takes, which is a second."""
REPLY_S = 120
END_S = 60
PROMPT = "import os\n\ndef "
PROBE = """
import json, headrace
from headrace.ops.cpu import _native
print(json.dumps({"where": headrace.__file__, "levels": list(_native.levels())}))
"""


class WheelError(Exception):
    """Something a wheel has to do, and this one does not."""


def bare_environment(environ: Mapping[str, str], programs: Path, home: Path) -> dict[str, str]:
    """An environment in which nothing can be compiled; settings of pip and of proxies stay.

    programs: the one folder of the PATH. home: in place of the user's.
    """
    kept = ("PIP_", "SSL_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "LANG", "LC_")
    found = {name: value for name, value in environ.items() if name.upper().startswith(kept)}
    return found | {
        "PATH": str(programs), "HOME": str(home), "CC": NOWHERE, "CXX": NOWHERE,
    }  # fmt: skip


def wheel_version(wheel: Path) -> str:
    """The version in a wheel's file name."""
    return wheel.name.split("-")[1]


def completion_text(reply: Any) -> str:
    """The text of a completion. Raises WheelError for another reply, or one without a token."""
    try:
        text, tokens = reply["choices"][0]["text"], reply["usage"]["completion_tokens"]
    except (KeyError, IndexError, TypeError):
        raise WheelError(f"not a completion: {reply!r:.300}") from None
    if not isinstance(text, str) or not text or tokens < 1:
        raise WheelError(f"a completion without text: {reply!r:.300}")
    return text


def output_of(command: list[str], environment: Mapping[str, str], folder: Path) -> str:
    """What a command prints. Raises WheelError, with all its output, where it fails."""
    done = subprocess.run(
        command, env=dict(environment), cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise WheelError(
            f"{' '.join(command)} exited {done.returncode}:\n{done.stdout}{done.stderr}"
        )
    return done.stdout.strip()


def completed(url: str) -> str:
    """The text of one greedy completion."""
    body = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0}
    request = urllib.request.Request(  # of our own server
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=REPLY_S) as reply:
        return completion_text(json.load(reply))


def first_line(server: subprocess.Popen[str], within_s: float) -> str:
    """The first line that a server prints; empty if it ends, or is killed, without one.

    within_s: it is killed where it prints nothing for so long.
    """
    if server.stdout is None:
        return ""
    watchdog = threading.Timer(within_s, server.kill)
    watchdog.start()
    try:
        return server.stdout.readline()
    finally:
        watchdog.cancel()


def served(programs: Path, environment: Mapping[str, str], folder: Path) -> list[str]:
    """What was seen of `headrace serve`. Raises WheelError."""
    command = [str(programs / "headrace"), "serve", "--host", "127.0.0.1", "--port", "0", "--json"]
    log = folder / "serve.log"
    began = time.monotonic()
    with (
        log.open("w", encoding="utf-8") as errors,
        subprocess.Popen(
            command, env=dict(environment), cwd=folder, stdout=subprocess.PIPE, stderr=errors,
            text=True,
        ) as server,
    ):  # fmt: skip
        try:
            line = first_line(server, START_S)
            ready_s = time.monotonic() - began
            if not line:
                raise WheelError(
                    f"headrace serve printed no line in {ready_s:.0f} s (of {START_S}) and exited "
                    f"{server.wait(END_S)}:\n{log.read_text('utf-8')}"
                )
            about = json.loads(line)
            text = completed(about["url"])
            server.terminate()
            code = server.wait(END_S)
        finally:
            server.kill()
    if code != 0:
        raise WheelError(f"headrace serve exited {code} at SIGTERM:\n{log.read_text('utf-8')}")
    return [
        f"serves {about['model']} at {about['url']}, {ready_s:.1f} s after its start",
        f"{PROMPT!r} is continued with {text!r}",
        "ended by SIGTERM with status 0",
    ]


def check(wheel: Path, folder: Path) -> list[str]:
    """What was seen, in sentences. Raises WheelError."""
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    programs = folder / "venv" / "bin"
    environment = bare_environment(os.environ, programs, folder)
    if found := [name for name in COMPILERS if shutil.which(name, path=environment["PATH"])]:
        raise WheelError(f"the environment has {', '.join(found)}")
    python = str(programs / "python")
    output_of(
        [python, "-m", "pip", "install", "-q", "--only-binary", ":all:", str(wheel.resolve())],
        environment,
        folder,
    )
    printed = output_of([str(programs / "headrace"), "--version"], environment, folder)
    if wheel_version(wheel) not in printed.split():
        raise WheelError(f"headrace --version prints {printed!r}, not {wheel_version(wheel)}")
    probe = json.loads(output_of([python, "-c", PROBE], environment, folder))
    if not Path(probe["where"]).is_relative_to(folder):
        raise WheelError(f"headrace is imported from {probe['where']}, not from the wheel")
    return [
        f"installed in {folder}, where there is none of {', '.join(COMPILERS)}",
        f"headrace --version: {printed}",
        f"levels this processor runs: {', '.join(probe['levels'])}",
        *served(programs, environment, folder),
    ]


def main() -> int:
    """Check one wheel."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("wheel", type=Path)
    wheel = parser.parse_args().wheel
    print(f"{wheel.name}:")
    with tempfile.TemporaryDirectory(prefix="headrace-wheel-") as folder:
        try:
            print("\n".join(f"  {line}" for line in check(wheel, Path(folder).resolve())))
        except WheelError as error:
            print(f"FAILED: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
