"""Make the whole family: corpus, tokenizer, models, adapters, figures, cards, copies.

    python -m training.family              (make models sets up what it needs first)
    python -m training.family --dry-run    what there is to do, and by which commands

Each stage is a program of this folder, and is passed over when what it makes is there. It may be
stopped at any time (Ctrl-C, SIGTERM) and goes on where it was, runs from their last checkpoint.
Times are kept in `times.json` and told at the end. --smoke goes through all stages with a toy of
a model on a little of the standard library, in minutes, in a folder of its own.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.telemetry.machine import this_machine
from training.models.config import CHECKPOINT_NAME, read_note
from training.programs import RunProgram, run_program
from training.stages import FULL, Stage, plan

# What a training program exits with when it was stopped and saved (launch.py).
STOPPED = 3


@dataclass
class Times:
    """Seconds of each stage over all its runs, in a JSON file with the machine they are of."""

    path: Path

    def read(self) -> dict[str, Any]:
        if not self.path.exists():
            return {"machine": "", "stages": {}}
        times: dict[str, Any] = json.loads(self.path.read_text())
        return times

    def add(self, stage: str, seconds: float) -> None:
        times = self.read()
        cpu, n_cpus, memory_bytes = this_machine()
        times["machine"] = f"{n_cpus} CPUs ({cpu}), {memory_bytes / 2**30:.0f} GiB of memory"
        times["stages"][stage] = round(times["stages"].get(stage, 0.0) + seconds, 1)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(times, indent=1) + "\n")


def seconds_of(stages: Sequence[Stage], times: Times) -> dict[str, float]:
    """What each stage took; of a run at least its time in steps, wherever it was started."""
    recorded = times.read()["stages"]
    found = {}
    for stage in stages:
        seconds = recorded.get(stage.name, 0.0)
        if stage.run is not None and (checkpoint := stage.run / CHECKPOINT_NAME).exists():
            seconds = max(seconds, read_note(checkpoint)["progress"]["counted_s"])
        found[stage.name] = seconds
    return found


def make(
    stages: Sequence[Stage],
    times: Times,
    run: RunProgram = run_program,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Do what is to be done, in order.

    Raises SystemExit: with 3 when a run was stopped, with a message when a stage failed, what it is
    made from is not there, or a finished run is older than that.
    """
    for stage in stages:
        state = stage.state()
        if state == "done":
            continue
        if state == "outdated" and stage.run is not None:
            newer = ", ".join(path.name for path in stage.newer_sources())
            raise SystemExit(
                f"{stage.name}: the finished run in {stage.run} is older than {newer}: remove that "
                f"folder to train again, or touch its {CHECKPOINT_NAME} to keep it"
            )
        if absent := [str(path) for path in stage.made_from if not path.exists()]:
            raise SystemExit(
                f"{stage.name}: {', '.join(absent)} is not there: run the stages before it, too "
                "(all of them without --only)"
            )
        print(f"== {stage.name}: {state}", file=sys.stderr)
        for path in stage.made:
            path.parent.mkdir(parents=True, exist_ok=True)
        for command in stage.commands:
            started_s = clock()
            status = run(f"training.{command[0]}", command[1:])
            times.add(stage.name, clock() - started_s)
            if status == STOPPED and stage.run is not None:
                print(f"{stage.name}: stopped; the same command goes on", file=sys.stderr)
                raise SystemExit(STOPPED)
            if status != 0:
                raise SystemExit(f"{stage.name}: exit status {status} of {' '.join(command)}")
        if (after := stage.state()) != "done":
            raise SystemExit(f"{stage.name}: its commands ended well, but it is {after} still")


def chosen(stages: Sequence[Stage], only: Sequence[str]) -> list[Stage]:
    """The stages named in `only`, or whose group is; all when it names none.

    A group is what stands before a name's first dash: "measure" is all that is measured. Raises
    ValueError for a name that is neither.
    """
    names = {stage.name for stage in stages}
    groups = {name.split("-")[0] for name in names} - names
    if unknown := sorted(set(only) - names - groups):
        there = ", ".join(sorted(names | groups))
        raise ValueError(f"--only {unknown[0]}: no such stage; there are {there}")

    def wanted(name: str) -> bool:
        return name in only or (name.split("-")[0] in groups.intersection(only))

    return [stage for stage in stages if not only or wanted(stage.name)]


def described(stages: Sequence[Stage], times: Times) -> list[dict[str, Any]]:
    """The plan, JSON-ready."""
    seconds = seconds_of(stages, times)
    return [
        {
            "stage": stage.name,
            "state": stage.state(),
            "seconds": seconds[stage.name],
            "commands": [" ".join(command) for command in stage.commands],
        }
        for stage in stages
    ]


def report(stages: Sequence[Stage], times: Times, as_json: bool, commands: bool) -> None:
    """Print the plan with states and times."""
    entries = described(stages, times)
    total_s = sum(entry["seconds"] for entry in entries)
    if as_json:
        print(json.dumps({"stages": entries, "total_seconds": total_s}, indent=1))
        return
    for entry in entries:
        print(f"{entry['stage']:24} {entry['state']:9} {entry['seconds']:9.1f} s")
        for command in entry["commands"] if commands else ():
            print(f"    python -m training.{command}")
    print(f"{'total':34} {total_s:9.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the family of small models.")
    parser.add_argument("--work", type=Path, help="folder for all that is made")
    parser.add_argument("--only", action="append", default=[], metavar="STAGE")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and do nothing")
    parser.add_argument("--json", action="store_true", help="print the plan and times as JSON")
    parser.add_argument("--smoke", action="store_true", help="all stages with toys, in minutes")
    arguments = parser.parse_args()
    work, root, effort = arguments.work or Path("build/train"), Path(), FULL
    run = run_program
    if arguments.smoke:
        from training import smoke

        work = arguments.work or Path("build/train-smoke")
        root, effort = work / "repository", smoke.effort(work)
        run = smoke.runner()
    try:
        stages = chosen(plan(work, root, effort), arguments.only)
    except ValueError as error:
        parser.error(str(error))
    times = Times(work / "times.json")
    if not arguments.dry_run:
        make(stages, times, run)
    report(stages, times, arguments.json, commands=arguments.dry_run)


if __name__ == "__main__":
    main()
