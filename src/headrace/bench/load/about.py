"""What a reader needs to repeat a run, as a flat table without secrets."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from datetime import datetime

from headrace import __version__
from headrace.bench.client.endpoints import Endpoint, without_secrets
from headrace.bench.client.failure_text import BLOT
from headrace.bench.load.prompt_options import RunPrompts
from headrace.bench.record import About
from headrace.telemetry.machine import this_machine


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
) -> About:
    """load: in words. open_loop: whether requests come whatever comes back. command: as it was
    typed; values that may be secret are blotted out."""
    cpu, cpus, memory_bytes = this_machine()
    return {
        "version": __version__,
        "command": " ".join(_shown(command, endpoint)),
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
    hide = False
    for word in command:
        if hide:
            told.append(f"{_name(word)}:{BLOT}")
            hide = False
            continue
        hide = word in ("--header", "-H")
        if word.startswith("--header="):
            word = f"--header={_name(word.removeprefix('--header='))}:{BLOT}"
        flag, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        if "://" in value:
            value = without_secrets(value)
        elif os.sep in value and value.startswith((os.sep, "~", ".")):
            value = value.rstrip(os.sep).rpartition(os.sep)[2]
        word = flag + equals + value
        for secret in endpoint.secrets:
            word = word.replace(secret, BLOT)
        told.append(word)
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
