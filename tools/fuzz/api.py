"""Requests made of the OpenAPI document (schemathesis), held against what it says of the replies.

    python -m tools.fuzz.api --examples 2000             a tiny model, on an engine of its own
    python -m tools.fuzz.api --url http://127.0.0.1:8000 --key KEY
    python -m tools.fuzz.api --seconds 600               until the time is over

Every reply has to have a documented status, type, headers and body, each event of a stream too;
what the document forbids has to be refused, a path without a key and a method it does not have as
well, and nothing may end in a 500. Not asked: that whatever it allows is accepted, because
vocabulary, context and the rules between fields are no part of a schema.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance",
    "response_headers_conformance", "response_schema_conformance", "negative_data_rejection",
    "missing_required_header", "unsupported_method", "allow_header_conformance", "ignored_auth",
)  # fmt: skip
# A 503 with its Retry-After is an answer of a server that is busy or restarts its engine; that it
# is documented at the operation is checked as for any other status.
_SETTINGS = '[checks.not_a_server_error]\nexpected-statuses = ["2xx", "3xx", "4xx", "503"]\n'
# The command line of schemathesis, without looking for its script.
_MAIN = "from schemathesis.cli import schemathesis; schemathesis()"
# Beyond what a run takes by itself; none may hang.
_EXTRA_S = 300


@dataclass(frozen=True)
class Outcome:
    """requests: that were made. failures: what was found, in words. text: all that was printed."""

    requests: int
    operations: int
    failures: tuple[str, ...]
    seconds: float
    text: str


def run(
    url: str,
    *,
    seed: int,
    examples: int,
    seconds: int | None = None,
    key: str | None = None,
    skip: tuple[str, ...] = (),
) -> Outcome:
    """Try the server at `url`. examples: of each kind at each operation. skip: paths left out."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        (Path(folder) / "schemathesis.toml").write_text(_SETTINGS, encoding="utf-8")
        command = [
            sys.executable, "-c", _MAIN, "run", f"{url}/openapi.json",
            "--seed", str(seed), "--max-examples", str(examples),
            "--checks", ",".join(CHECKS), "--phases", "examples,coverage,fuzzing",
            "--request-timeout", "120", "--continue-on-failure", "--no-shrink", "--no-color",
            "--suppress-health-check", "all", "--warnings", "off",
            "--report", "json", "--report-json-path", str(report),
        ]  # fmt: skip
        if seconds is not None:
            command += ["--max-time", str(seconds)]
        if key is not None:
            command += ["--header", f"Authorization: Bearer {key}"]
        for path in skip:
            command += ["--exclude-path", path]
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=(seconds or 300) + _EXTRA_S,
            env=os.environ | {"NO_COLOR": "1"},
        )
        text = done.stdout + done.stderr
        if not report.exists():
            raise RuntimeError(f"schemathesis ended with {done.returncode}:\n{text}")
        told = json.loads(report.read_text(encoding="utf-8"))
    failures = [
        f"{one['title']}: {', '.join(one.get('operations', []))}" for one in told["failures"]
    ]
    failures += [json.dumps(one) for one in told["errors"]]
    if done.returncode and not failures:
        failures.append(f"schemathesis ended with {done.returncode}")
    return Outcome(
        requests=told["test_cases"]["generated"],
        operations=told["operations"]["tested"],
        failures=tuple(failures),
        seconds=told["running_time"],
        text=text,
    )


def main() -> None:
    """The command line; ends with status 1 when something was found."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--url", help="a server that runs; default: one with a tiny model")
    parser.add_argument("--key", help="its admin key, or its API key")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--examples", type=int, default=500, help="of each kind at each operation")
    parser.add_argument("--seconds", type=int, help="go on until then")
    options = parser.parse_args()
    if options.url is not None:
        outcome = run(
            options.url, seed=options.seed, examples=options.examples, seconds=options.seconds,
            key=options.key,
        )  # fmt: skip
    else:
        outcome = _with_own_server(options)
    print(outcome.text if outcome.failures else "")
    print(
        f"{outcome.requests} requests at {outcome.operations} operations in "
        f"{outcome.seconds:.0f} s: {len(outcome.failures)} failures"
    )
    for failure in outcome.failures:
        print(failure)
    sys.exit(1 if outcome.failures else 0)


def _with_own_server(options: argparse.Namespace) -> Outcome:
    from tests.tiny import write_tiny_gguf

    key = secrets.token_urlsafe()
    keys = {"HEADRACE_API_KEY": "k-" + key, "HEADRACE_ADMIN_API_KEY": key}
    with tempfile.TemporaryDirectory() as folder:
        model = write_tiny_gguf(Path(folder), family="qwen3")
        log = Path(folder) / "log"
        command = [
            sys.executable, "-m", "headrace", "serve", str(model), "--port", "0", "--json",
            "--backend", "reference", "--max-model-len", "256", "--request-timeout", "5",
        ]  # fmt: skip
        with log.open("w", encoding="utf-8") as errors:
            server = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True,
                env=os.environ | keys,
            )  # fmt: skip
            assert server.stdout is not None
            line = server.stdout.readline()
            try:
                if not line:
                    raise RuntimeError(log.read_text(encoding="utf-8"))
                outcome = run(
                    json.loads(line)["url"], seed=options.seed, examples=options.examples,
                    seconds=options.seconds, key=key,
                )  # fmt: skip
                alive = server.poll() is None
            finally:
                server.terminate()
                server.wait(60)
        tracebacks = log.read_text(encoding="utf-8").count("Traceback")
    more: tuple[str, ...] = () if alive else (f"the server ended with {server.returncode}",)
    if tracebacks:
        more += (f"{tracebacks} tracebacks in the server's log",)
    return Outcome(
        outcome.requests, outcome.operations, outcome.failures + more, outcome.seconds, outcome.text
    )


if __name__ == "__main__":
    main()
