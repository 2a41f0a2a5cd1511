"""How far plans are off once they are calibrated: on the tests themselves, and on another model.

`python -m benchmarks.plan_calibration --save FOLDER [--quick] [--json]` writes models of two shapes
with random weights in three kinds, measures each with `headrace plan calibrate --measure` (prompts
and contexts to 8,192 tokens, batches to 32), and prints tables in Markdown: errors of a calibration
with both shapes on what it was fitted to and on tests it had not seen, and errors on each shape of
a calibration with the other alone. Measurements are kept in FOLDER, nothing is stored for plans.
What FOLDER has is not measured again, so that a run that was ended goes on. About twenty minutes on
two cores, on which nothing else should run, and 3 GB of disk. Exit status 1: an aim was missed; 2:
something failed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.load_runs import HEADRACE, RunError, as_script
from benchmarks.markdown import number, surroundings, surroundings_line, table, tell

SHAPES = ("qwen3-0.6b", "llama-3.2-1b")
KINDS = ("BF16", "Q8_0", "Q4_K_M")
AIM_MEAN, AIM_WORST, AIM_OTHER_MEAN = 0.08, 0.20, 0.12
TIMEOUT_S = 3600.0
CALIBRATE = ("plan", "calibrate")


def make_model(folder: Path, shape: str, kind: str) -> Path:
    """The file of a shape in a kind, written unless it is there."""
    path = folder / f"{shape}-{kind}.gguf"
    if not path.is_file():
        tell(f"writing {path}")
        unfinished = path.with_suffix(".part")
        maker = str(Path(__file__).with_name("shaped_model.py"))
        command = [sys.executable, maker, str(unfinished), "--shape", shape, "--codec", kind]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=TIMEOUT_S)
        unfinished.rename(path)
    return path


def headrace(*arguments: str) -> str:
    """What the command prints; its progress goes where ours does."""
    done = subprocess.run(
        [*HEADRACE, *arguments], stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S
    )
    if done.returncode:
        raise RunError(f"headrace {' '.join(arguments)}: exit status {done.returncode}")
    return done.stdout


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Path]:
    """By shape the file of its measurements."""
    found = {}
    for shape in options.shapes:
        path = folder / f"measured-{shape}.json"
        for kind in options.kinds:
            done = folder / f"done-{shape}-{kind}"
            if done.exists():
                continue
            model = make_model(folder, shape, kind)
            flags = ["--measurements", str(path), "--repeats", str(options.repeats), "--no-store"]
            flags += ["--longest", str(options.longest)]
            if options.threads:
                flags += ["--threads", str(options.threads)]
            headrace(*CALIBRATE, "--measure", str(model), *flags, "--json")
            done.touch()
            if not options.keep_models:
                model.unlink()
        found[shape] = path
    return found


def calibrated(sources: Iterable[Path], check: Path | None) -> dict[str, Any]:
    """The answer of a fit to `sources`, with `check` predicted."""
    flags = [word for path in sources for word in ("--from", str(path))]
    if check is not None:
        flags += ["--check", str(check)]
    answer: dict[str, Any] = json.loads(headrace(*CALIBRATE, *flags, "--no-store", "--json"))
    return answer


def what(test: str) -> str:
    """What a test is of: prefill, decode of one request, or of several."""
    if test.startswith("pp"):
        return "prompts and answers" if "tg" in test else "prefill"
    return "decode, batch 1" if test.endswith(" b1") else "decode, batches"


def errors_by(rows: Sequence[dict[str, Any]], field: str) -> list[list[object]]:
    """Mean and worst size of `field` for each model, kind and what was measured, then of all."""
    groups: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        if row[field] is None:
            continue
        group = groups.setdefault((row["model"], row["kind"], what(row["test"])), [])
        group.append(abs(row[field]))
    everything = [each for group in groups.values() for each in group]
    lines = [_line(", ".join(key), group) for key, group in groups.items()]
    return [*lines, _line("**all**", everything)]


def _line(name: str, errors: Sequence[float]) -> list[object]:
    if not errors:
        return [name, 0, None, None]
    mean, worst = sum(errors) / len(errors), max(errors)
    return [name, len(errors), number(100 * mean, 1), number(100 * worst, 1)]


def of_all(rows: Sequence[dict[str, Any]], field: str) -> tuple[float, float] | None:
    """Mean and worst."""
    sizes = [abs(row[field]) for row in rows if row[field] is not None]
    return (sum(sizes) / len(sizes), max(sizes)) if sizes else None


def report(found: dict[str, Any]) -> str:
    """Both tables, and every test that is off by more than the aim of the worst."""
    rows = found["both"]["rows"]
    columns = ["error in %", "tests", "mean", "worst"]
    parts = [
        f"Calibrated on all of it (aims: mean {AIM_MEAN:.0%}, worst {AIM_WORST:.0%})",
        table(columns, errors_by(rows, "error")),
        "Each test by a calibration without it",
        table(columns, errors_by(rows, "left_out_error")),
    ]
    for known, checked in found["other"].items():
        parts += [
            f"Calibrated on {known} alone, the other predicted (aim: mean {AIM_OTHER_MEAN:.0%})",
            table(columns, errors_by(checked, "error")),
        ]
    far = [row for row in rows if abs(row["error"]) > AIM_WORST]
    if far:
        cells = [
            [f"{row['model']} {row['kind']} {row['test']}",
             number(row["measured_tokens_per_s"], 1), number(row["predicted_tokens_per_s"], 1),
             number(100 * row["error"], 1)]
            for row in far
        ]  # fmt: skip
        parts += ["Off by more", table(["test", "tokens/s", "predicted", "error, %"], cells)]
    return "\n\n".join(parts)


def missed(found: dict[str, Any]) -> list[str]:
    """The aims that were not met, each as a sentence."""
    told = []
    whole = of_all(found["both"]["rows"], "error")
    if whole is not None and whole[0] > AIM_MEAN:
        told.append(f"mean error {whole[0]:.1%}, the aim is {AIM_MEAN:.0%}")
    if whole is not None and whole[1] > AIM_WORST:
        told.append(f"worst error {whole[1]:.1%}, the aim is {AIM_WORST:.0%}")
    for known, checked in found["other"].items():
        other = of_all(checked, "error")
        if other is not None and other[0] > AIM_OTHER_MEAN:
            told.append(
                f"calibrated on {known} the other has a mean error of {other[0]:.1%}, the aim is "
                f"{AIM_OTHER_MEAN:.0%}"
            )
    return told


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """With what --quick means put in."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "--save", type=Path, required=True, help="folder for models and measurements"
    )
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES))
    parser.add_argument("--kinds", nargs="+", default=list(KINDS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--longest", type=int, default=8192, help="prompt or context")
    parser.add_argument("--threads", type=int, help="compute threads [as many as there are CPUs]")
    parser.add_argument(
        "--keep-models", action="store_true", help="else a model's file goes once it is measured"
    )
    parser.add_argument("--quick", action="store_true", help="one small model, to see that it runs")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(given)
    if options.quick:
        options.shapes, options.kinds, options.repeats = ["small"], ["Q8_0"], 1
        options.longest, options.threads = 32, 1
    return options


def main() -> int:
    """Measure, fit and print."""
    options = arguments()
    facts = surroundings(datetime.now(UTC))
    tell(surroundings_line(facts))
    folder: Path = options.save.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    paths = measure(options, folder)
    found: dict[str, Any] = {"both": calibrated(paths.values(), None), "other": {}}
    for shape, path in paths.items():
        for other in paths.values():
            if other != path:
                found["other"][shape] = calibrated([path], other)["checked"]
    result = folder / "plan_calibration.json"
    result.write_text(json.dumps({"machine": facts, **found}, indent=1) + "\n", encoding="utf-8")
    tell(f"all of it is in {result}")
    if options.json:
        sys.stdout.write(json.dumps({"machine": facts, **found}) + "\n")
    else:
        sys.stdout.write(f"{report(found)}\n\n{surroundings_line(facts)}\n")
    far = [] if options.quick else missed(found)
    for sentence in far:
        tell(sentence)
    return int(bool(far))


if __name__ == "__main__":
    sys.exit(as_script(main))
