"""Subjects for checks, made of what a test states."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from headrace.catalog import Catalog
from headrace.plan.lint.checks import CHECKS
from headrace.plan.lint.commands import setup_of_words
from headrace.plan.lint.engine_setup import EngineSetup
from headrace.plan.lint.finding import Found, Needs, Outcome
from headrace.plan.lint.gateway_setup import GatewaySetup, gateway_setup
from headrace.plan.lint.prompt_file import Prompts, read_prompts
from headrace.plan.lint.subject import Subject
from headrace.plan.model.model_shape import ModelShape, shape_of_catalog
from headrace.plan.run_file import Client, Request, Run
from headrace.telemetry.readings import Reading


@lru_cache(maxsize=1)
def catalog() -> Catalog:
    return Catalog.load()


def model(name: str = "llama-3.1-8b") -> ModelShape:
    return shape_of_catalog(catalog().models[name])


def engine(line: str) -> EngineSetup:
    """Of the words of a command line."""
    found = setup_of_words([(word, "command line") for word in line.split()], "command line")
    assert found is not None
    return found


def gateway(loaded: dict[str, Any]) -> GatewaySetup:
    return gateway_setup(loaded, {}, "litellm.yaml")


def subject(line: str | None = None, **fields: Any) -> Subject:
    """hardware: by id. shape, draft: by id of the catalog."""
    known = catalog()
    if isinstance(fields.get("hardware"), str):
        row = known.hardware[fields["hardware"]]
        fields |= {"hardware": row, "hardware_name": row.id}
    for name in ("shape", "draft_shape"):
        if isinstance(fields.get(name), str):
            fields[name] = model(fields[name])
    if line is not None:
        fields["engine"] = engine(line)
    return Subject(catalog=known, **fields)


def outcome(id: str, of: Subject) -> Outcome:
    return next(one for one in CHECKS if one.id == id).run(of)


def found(id: str, of: Subject) -> Found:
    """The one finding there has to be."""
    made = outcome(id, of)
    assert not isinstance(made, Needs), made
    assert len(made) == 1, made
    return made[0]


def values(one: Found) -> dict[str, float | str]:
    return {item.name: item.value for item in one.evidence}


def lacks(id: str, of: Subject) -> str:
    made = outcome(id, of)
    assert isinstance(made, Needs), made
    return made.what


def request(index: int, sent: float = 0.0, **fields: Any) -> Request:
    given: dict[str, Any] = {
        "measured": True, "intended_s": sent, "sent_s": sent, "end_s": sent + 1.0, "ttft_s": 0.1,
        "failure": "", "status": 200, "prompt_tokens": 100 + index % 7,
        "output_tokens": 50 + index % 5, "cached_tokens": None, "session": None,
    }  # fmt: skip
    return Request(index=index, **(given | fields))


def run(requests: Sequence[Request] = (), readings: Sequence[Reading] = (), **fields: Any) -> Run:
    given: dict[str, Any] = {
        "where": "run", "about": {"open_loop": True}, "definition": "headrace",
        "duration_s": 300.0, "client": Client(False, ()),
    }  # fmt: skip
    return Run(requests=tuple(requests), readings=tuple(readings), **(given | fields))


def readings(*values: dict[str, float], every_s: float = 1.0) -> list[Reading]:
    return [Reading(at * every_s, one) for at, one in enumerate(values)]


def prompts(folder: Path, lines: Sequence[dict[str, Any]]) -> Prompts:
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return read_prompts(path)
