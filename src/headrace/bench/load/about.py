"""What a reader needs to repeat a run, as a flat table without secrets."""

from __future__ import annotations

import os
import platform
import re
import shlex
from collections.abc import Sequence
from datetime import datetime

from headrace import __version__
from headrace.bench.client.endpoints import Endpoint, without_secrets
from headrace.bench.client.secrets import BLOT, blotted, long_ones
from headrace.bench.load.prompt_options import RunPrompts
from headrace.bench.record import RunMetadata
from headrace.telemetry.machine import this_machine

# The value may be the next word, or part of this one, after other letters that are switches.
_HEADER = re.compile(r"(--header(?:=|$)|-q*H)(.*)", re.DOTALL)
_PATHS_ON_HOST = ("--endpoint", "--custom-endpoint", "--metrics-path")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def about_run(
    endpoint: Endpoint,
    requests: RunPrompts,
    *,
    command: Sequence[str],
    load: str,
    seed: int,
    tokenizer: str,
    processes: int,
    definitions: str,
    slo: str | None,
    started: datetime,
    open_loop: bool | None = None,
) -> RunMetadata:
    """load: in words. open_loop: whether requests come whatever comes back. command: the words that
    were typed; it is kept as a shell would take it, with values that may be secret blotted out."""
    cpu, cpus, memory_bytes = this_machine()
    return {
        "version": __version__,
        "command": shlex.join(_shown(command, endpoint)),
        "started": started.isoformat(timespec="seconds"),
        "endpoint": without_secrets(endpoint.base_url),
        "endpoint_kind": endpoint.kind,
        "model": endpoint.model,
        "load": load,
        "open_loop": open_loop,
        "prompts": requests.name,
        "prompts_fingerprint": requests.fingerprint,
        "prompts_notes": "; ".join(requests.notes) or None,
        "tokenizer": tokenizer,
        "seed": seed,
        "definitions": definitions,
        "slo": slo,
        "client_processes": processes,
        "client_cpu": cpu,
        "client_cpus": cpus,
        "client_memory_bytes": memory_bytes,
        "client_load_average": _load_average(),
        "client_system": f"{platform.system()} {platform.release()}",
        "client_python": platform.python_version(),
        "clock": "CLOCK_MONOTONIC",
    }


def _shown(command: Sequence[str], endpoint: Endpoint) -> list[str]:
    """Headers by their names alone, addresses without passwords, files without their folders."""
    told: list[str] = []
    before = ""
    hide = False
    # What is short may be a word of the command, too, and a short secret is typed only where it is
    # taken out by its place.
    secrets = long_ones(endpoint.secrets)
    for word in command:
        if hide:
            told.append(f"{_name(word)}:{BLOT}")
            hide = False
            continue
        header = _HEADER.match(word)
        if header is not None:
            hide = not header[2]
            told.append(f"{header[1]}{_name(header[2])}:{BLOT}" if header[2] else word)
            continue
        flag, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        if _ADDRESS.match(value):
            value = without_secrets(value)
        elif (flag or before) in _PATHS_ON_HOST:
            value = value.partition("?")[0]
        elif os.sep in value and value.startswith((os.sep, "~", ".")):
            value = value.rstrip(os.sep).rpartition(os.sep)[2]
        told.append(blotted(flag + equals + value, secrets))
        before = word
    return told


def _name(header: str) -> str:
    """Of NAME:VALUE or NAME=VALUE."""
    return re.split("[:=]", header, maxsplit=1)[0]


def _load_average() -> float | None:
    """Of the last minute, where the system tells; other work on it is in every figure."""
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None
