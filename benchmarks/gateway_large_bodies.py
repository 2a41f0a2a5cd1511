"""A small request of one key beside large bodies of another, through `headrace gateway`.

`python -m benchmarks.gateway_large_bodies [--bodies 40] [--mb 10] [--room-mb 1000] [--json]` starts
a gateway with two keys in front of an endpoint that answers at once. One key sends all its bodies
in the same moment, first to be passed on as they came, then to be translated into another dialect;
the other asks for a short answer again and again, and now and then with a large body of its own.
Prints what became of them and how long the other key waited, beside the same without any large
body. The client's own threads are on the same machine, so the times need one that does nothing
else.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table

from benchmarks.gateway_peers import HEADRACE, KEY, MODEL, Peer, running
from benchmarks.load_runs import as_script, endpoint, json_of

OTHER_KEY = "hr-" + "otherstoo" * 4
QUIET_S = 2.0
EVERY_S = 0.02
PATHS = {"passed on": "/v1/chat/completions", "translated": "/v1/messages"}


def peer(room_bytes: int) -> Peer:
    """A gateway with two keys, which holds so many bytes of large bodies at a time."""

    def configure(folder: Path, url: str) -> None:
        settings = {
            "access": {
                "keys": {
                    "bench": {"key": "env:GATEWAY_BENCH_KEY"},
                    "other": {"key": "env:GATEWAY_OTHER_KEY"},
                }
            },
            "listen": {"max_body_bytes": 64 * 10**6, "max_bodies_bytes": room_bytes},
            "ledger": {"path": "ledger.sqlite"},
            "providers": {
                "left": {"base_url": f"{url}/v1", "dialect": "openai-chat", "api_key": ["none"]}
            },
            "models": {MODEL: {"targets": ["left/instant"]}},
        }
        # JSON is YAML.
        (folder / "gateway.yaml").write_text(json.dumps(settings))

    environment = (("GATEWAY_BENCH_KEY", KEY), ("GATEWAY_OTHER_KEY", OTHER_KEY))
    return HEADRACE._replace(configure=configure, environment=environment)


def body_of(size: int) -> bytes:
    """A conversation with one message of about so many bytes."""
    text = 'x = [{"a": 1}, "b\\n"]\n' * (size // 27 + 1)
    fields = {"model": MODEL, "max_tokens": 16, "messages": [{"role": "user", "content": text}]}
    return json.dumps(fields).encode()


def post(url: str, path: str, key: str, body: bytes) -> tuple[int, float]:
    """The status, and seconds until all of the answer was there."""
    where = urlsplit(url)
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    begun_s = time.perf_counter()
    connection = http.client.HTTPConnection(str(where.hostname), where.port, timeout=120)
    try:
        connection.request("POST", path, body, headers)
        reply = connection.getresponse()
        reply.read()
    except ConnectionError:  # refused while it was still being sent
        return 0, time.perf_counter() - begun_s
    finally:
        connection.close()
    return reply.status, time.perf_counter() - begun_s


class Waits:
    """Seconds that the other key's requests took."""

    def __init__(self, url: str, body: bytes) -> None:
        self._url, self._body = url, body
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.taken_s: list[float] = []

    def __enter__(self) -> Waits:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            status, taken_s = post(self._url, PATHS["passed on"], OTHER_KEY, self._body)
            if status != 200:
                raise RuntimeError(f"the other key got {status}")
            self.taken_s.append(taken_s)
            self._over.wait(EVERY_S)

    def figures(self) -> dict[str, object]:
        """Their number, and quantiles in milliseconds."""
        ordered = sorted(self.taken_s)
        return {
            "requests": len(ordered),
            "p50 ms": round(1e3 * ordered[len(ordered) // 2], 1),
            "most ms": round(1e3 * ordered[-1], 1),
        }


def crowd(url: str, path: str, body: bytes, count: int) -> dict[str, object]:
    """So many of one key at once: their statuses, and seconds until the last answer."""
    statuses: Counter[int] = Counter()

    def run() -> None:
        statuses[post(url, path, KEY, body)[0]] += 1

    threads = [threading.Thread(target=run) for _ in range(count)]
    begun_s = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = ", ".join(f"{number} x {status}" for status, number in statuses.items())
    return {"statuses": told, "until the last s": round(time.perf_counter() - begun_s, 2)}


def crowd_apart(url: str, path: str, options: argparse.Namespace) -> dict[str, object]:
    """The same in a process of its own, so that the other key's client does not wait for it."""
    command = [sys.executable, "-m", "benchmarks.gateway_large_bodies", "--crowd", url, path]
    command += ["--bodies", str(options.bodies), "--mb", str(options.mb)]
    return json_of(command, timeout_s=300)


def rows(url: str, options: argparse.Namespace) -> Sequence[dict[str, object]]:
    """One row without large bodies, one for each way they go, once for each size of the other."""
    count, small, large = options.bodies, body_of(100), body_of(int(options.mb * 1e6))
    post(url, PATHS["passed on"], OTHER_KEY, small)
    with Waits(url, small) as waits:
        time.sleep(QUIET_S)
    found = [{"large bodies": "none", "the other key's": "small", **waits.figures()}]
    for other, body in (("small", small), ("large", large)):
        for way, path in PATHS.items():
            with Waits(url, body) as waits:
                figures = crowd_apart(url, path, options)
            found.append(
                {
                    "large bodies": f"{count} x {len(large) / 1e6:.1f} MB, {way}",
                    "the other key's": other,
                    **waits.figures(),
                    **figures,
                }
            )
    return found


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--bodies", type=int, default=40)
    parser.add_argument("--mb", type=float, default=10.0, help="of each")
    parser.add_argument("--room-mb", type=float, default=1000.0, help="listen.max_bodies_bytes")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--crowd", nargs=2, metavar=("URL", "PATH"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.crowd:
        body = body_of(int(options.mb * 1e6))
        url, path = options.crowd
        sys.stdout.write(json.dumps(crowd(url, path, body, options.bodies)) + "\n")
        return 0
    upstream = [sys.executable, "-m", "benchmarks.instant_endpoint"]
    with tempfile.TemporaryDirectory() as folder, endpoint(upstream) as provider:
        gateway = peer(int(options.room_mb * 1e6))
        python = Path(sys.executable)
        with running(gateway, python, provider.url, Path(folder) / "gateway", None) as server:
            found = rows(server.url, options)
    if options.json:
        sys.stdout.write("".join(json.dumps(row) + "\n" for row in found))
    else:
        table = Table(*found[-1])
        for row in found:
            table.add_row(*(str(row.get(name, "")) for name in found[-1]))
        Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(as_script(main))
