"""From a providers file and a database to a plan: what goes on, what is new, what is refused."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headrace import __version__
from headrace.bench.load.tokenization import ClientTokenization
from headrace.bench.providers.campaign import Plan
from headrace.bench.providers.endpoints import make_endpoints
from headrace.bench.providers.identity import (
    all_differences,
    joined_briefly,
    provider_facts,
    said_facts,
    workload_facts,
)
from headrace.bench.providers.prompts import PromptSource
from headrace.bench.providers.schedule import Schedule
from headrace.bench.providers.settings import ProvidersFile
from headrace.bench.providers.store import Store
from headrace.errors import ConfigError
from headrace.telemetry.machine import this_machine


def make_plan(
    file: ProvidersFile,
    store: Store,
    *,
    folder: Path,
    tokenization: ClientTokenization,
    environ: Mapping[str, str],
    entropy: Callable[[], int],
    append: bool = False,
) -> Plan:
    """folder: where the file's data set is. append: go on though other things were measured.

    The schedule of the last session goes on where its interval is the same and what is measured,
    too; otherwise it begins now. Raises ConfigError for what cannot be sent, and for a database of
    other measurements, naming what differs.
    """
    prompts = PromptSource(file, folder, tokenization, entropy)
    endpoints = make_endpoints(file, environ, prompts.round())
    workload = workload_facts(file, prompts.name, prompts.fingerprint)
    facts = {one.name: (provider_facts(one), said_facts(one)) for one in file.providers}
    schedule = Schedule(0.0, file.interval_s, file.duration_s)
    goes_on = False
    before = store.last_session()
    if before is not None:
        measured = {name: pair[0] for name, pair in facts.items()}
        found = all_differences((before.workload, before.providers), (workload, measured))
        if found and not append:
            raise ConfigError(
                f"--db {store.path}: was filled with other settings: {joined_briefly(found)}; "
                "name another --db, or add to it as separate series with --append"
            )
        same = before.schedule._replace(duration_s=file.duration_s)
        # A round on request alone has no schedule that could go on.
        goes_on = not found and same.interval_s == file.interval_s
        goes_on = goes_on and store.last_slot(same) is not None
        schedule = same if goes_on else schedule
    return Plan(
        file=file,
        endpoints=endpoints,
        prompts=prompts,
        tokenization=tokenization,
        workload=workload,
        facts=facts,
        schedule=schedule,
        goes_on=goes_on,
        about=_about(tokenization),
    )


def _about(tokenization: ClientTokenization) -> dict[str, Any]:
    cpu, cpus, memory_bytes = this_machine()
    return {
        "version": __version__,
        "tokenizer": tokenization.name,
        "definitions": "headrace",
        "client_cpu": cpu,
        "client_cpus": cpus,
        "client_memory_bytes": memory_bytes,
        "client_system": f"{platform.system()} {platform.release()}",
        "client_python": platform.python_version(),
    }
