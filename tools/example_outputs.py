"""Writes what the examples of README.md and docs/quickstart.md print, with the model that ships.

    python -m tools.example_outputs            # after the embedded model has changed

A block of output stands behind MARK; the program is the last block of sh or Python before it. The
examples are greedy, so that one machine prints the same each time; another kind of processor rounds
otherwise, which is why no test compares.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/quickstart.md")
MARK = "<!-- printed by the block above: python -m tools.example_outputs -->"
ADDRESS = "127.0.0.1:8000"
LIMIT_S = 120
MAX_LINES = 20
"""An example that prints more tells a reader nothing."""

_PROGRAM = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OUTPUT = re.compile(rf"{re.escape(MARK)}\n```\n.*?^```$", re.MULTILINE | re.DOTALL)


def with_outputs(page: str, run: dict[str, list[str]], environment: dict[str, str]) -> str:
    """`page` with its outputs made anew; run: by language, the command that takes a program."""

    def printed(match: re.Match[str]) -> str:
        language, program = _PROGRAM.findall(page[: match.start()])[-1]
        done = subprocess.run(
            [*run[language], program],
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=LIMIT_S,
            env=environment,
            check=True,
        )
        lines = [line.rstrip() for line in done.stdout.strip().splitlines()]
        if any(line.startswith("```") for line in lines):
            raise ValueError(f"the output has a fence of its own, take another example: {program}")
        if not 0 < len(lines) <= MAX_LINES:
            raise ValueError(f"{len(lines)} lines of output, take another example: {program}")
        return "\n".join((MARK, "```", *lines, "```"))

    return _OUTPUT.sub(printed, page)


def main() -> None:
    """Serve, run the examples, write the pages."""
    scripts = str(Path(sys.executable).parent)
    environment = os.environ | {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "headrace", "serve", "--port", "0", "--json"]
    command += ["--log-level", "warning"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert server.stdout is not None
        address = json.loads(server.stdout.readline())["url"].removeprefix("http://")
        run = {"sh": ["sh", "-ec"], "python": [sys.executable, "-c"]}
        for name in PAGES:
            path = ROOT / name
            page = path.read_text(encoding="utf-8").replace(ADDRESS, address)
            new = with_outputs(page, run, environment).replace(address, ADDRESS)
            path.write_text(new, encoding="utf-8")
            print(f"{name}: {new.count(MARK)} outputs")
    finally:
        server.terminate()
        server.wait(timeout=30)


if __name__ == "__main__":
    main()
