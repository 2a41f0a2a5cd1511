"""What `plan speed` predicts beside what others measured, with the error of each row.

    python -m benchmarks.plan_published ../shared/assets/hardware --out plan-published.json
    python -m benchmarks.plan_published ../shared/assets/hardware --rows

Nothing is fitted: efficiencies are those the catalog states. TPOT is that of a decode step; under a
closed loop the prefills of other requests stop it, so the comparison adds their share,
(batch - 1) * TTFT / output tokens, as formula T5 of served tokens does. TTFT of a closed loop
includes waiting for others, which `plan speed` leaves out and says so: it is compared where a batch
runs alone, and for a closed loop printed apart. An error is predicted / measured - 1.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.markdown import number, table, tell
from benchmarks.published_rows import Published, Reading, read_all
from headrace.catalog import Catalog
from headrace.errors import HeadraceError
from headrace.plan.memory.kv_cache import kv_kind
from headrace.plan.memory.memory import Storage
from headrace.plan.model.model_shape import shape_of_catalog
from headrace.plan.speed.replica import Replica, ReplicaChoice, replica_of
from headrace.plan.speed.speed import Load, SpeedModel

QUANTILES = 10


@dataclass(frozen=True)
class Prediction:
    """Seconds beside the measured ones; low and high are ends of the stated efficiencies."""

    row: Published
    ttft_s: float
    tpot_s: float
    tpot_low_s: float
    tpot_high_s: float
    decode_bottleneck: str

    @property
    def ttft_error(self) -> float | None:
        """Above 0 where the prediction is slower."""
        return None if self.row.ttft_s is None else self.ttft_s / self.row.ttft_s - 1

    @property
    def tpot_error(self) -> float | None:
        return None if self.row.tpot_s is None else self.tpot_s / self.row.tpot_s - 1

    @property
    def in_band(self) -> bool:
        """Whether the measured TPOT is between the ends."""
        measured = self.row.tpot_s
        return measured is not None and self.tpot_low_s <= measured <= self.tpot_high_s


class Predictor:
    """Replicas by what they are made of, made once."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._made: dict[tuple[str, str, int, str], tuple[Replica, SpeedModel, SpeedModel]] = {}

    def predict(self, row: Published) -> Prediction:
        """Raises HeadraceError where the catalog lacks what is needed, or the load cannot fit."""
        key = (row.model, row.hardware, row.tensor, row.quantization)
        if key not in self._made:
            replica = self._replica(*key)
            self._made[key] = (replica, replica.model.at("best"), replica.model.at("worst"))
        replica, best, worst = self._made[key]
        replica.check_fits(row.prompt_tokens + row.output_tokens, row.batch)
        load = Load(
            prompt_tokens=row.prompt_tokens, output_tokens=row.output_tokens, batch=row.batch
        )
        ttft, tpot = _times(replica.model, row, load)
        step = replica.model.decode_step(row.batch, load.middle_context_tokens)
        low, high = _times(best, row, load)[1], _times(worst, row, load)[1]
        seen = replica.model.setup.efficiencies.decode_spread(row.batch)
        if seen is not None:
            low, high = min(low, tpot * seen.low), max(high, tpot * seen.high)
        return Prediction(row, ttft, tpot, low, high, step.bottleneck)

    def _replica(self, model: str, hardware: str, tensor: int, quantization: str) -> Replica:
        catalog = self._catalog
        kind = kv_kind("F16", catalog)
        storage = Storage(catalog.quantizations[quantization], kind, kind)
        shape = shape_of_catalog(catalog.models[model])
        choice = ReplicaChoice(hardware=hardware, count=tensor, tensor=tensor, step_tokens=8192)
        return replica_of(catalog, shape, storage, choice, None)


def _times(model: SpeedModel, row: Published, load: Load) -> tuple[float, float]:
    prefill = model.prefill(row.prompt_tokens).seconds
    tpot = model.decode_step(row.batch, load.middle_context_tokens).seconds
    if row.load == "alone":  # all prompts of the batch in turn
        return prefill * row.batch, tpot
    return prefill, tpot + (row.batch - 1) * prefill / row.output_tokens


def predict_all(catalog: Catalog, reading: Reading) -> list[Prediction]:
    """Of every row that can be; the others are counted with why not."""
    predictor = Predictor(catalog)
    found = []
    for row in reading.rows:
        try:
            found.append(predictor.predict(row))
        except HeadraceError as error:
            fits = "fit" in str(error)
            reason = "would not fit by `plan fit`" if fits else str(error)[:90]
            reading.left_out[f"{row.source}: {reason}"] += 1
    return found


def spread(errors: Iterable[float | None]) -> tuple[float, float, float, float] | None:
    """Median error, median of its size, and the 10th and 90th of 100; None of fewer than 3."""
    found = sorted(error for error in errors if error is not None)
    if len(found) < 3:
        return None
    cuts = statistics.quantiles(found, n=QUANTILES, method="inclusive")
    sizes = statistics.median(abs(each) for each in found)
    return statistics.median(found), sizes, cuts[0], cuts[-1]


def grouped(
    predictions: list[Prediction], key: Callable[[Prediction], tuple[str, ...]], heads: list[str]
) -> str:
    """A table with a row for each group: errors of TPOT, and of TTFT where a batch ran alone."""
    groups: defaultdict[tuple[str, ...], list[Prediction]] = defaultdict(list)
    for prediction in predictions:
        groups[key(prediction)].append(prediction)
    lines: list[list[object]] = []
    for name, ones in sorted(groups.items()):
        timed = [each for each in ones if each.row.tpot_s is not None]
        inside = sum(each.in_band for each in timed)
        cells = _cells(spread(each.tpot_error for each in ones))
        share = f"{inside / len(timed):.0%}" if timed else None
        cells += [share, *_cells(spread(each.ttft_error for each in ones))]
        lines.append([", ".join(name), len(ones), *cells])
    said = ["rows", "TPOT, median", "of size", "10 to 90 %", "in band", "TTFT, median", "of size"]
    return table([*heads, *said, "10 to 90 %"], lines)


def _cells(found: tuple[float, float, float, float] | None) -> list[str | None]:
    if found is None:
        return [None, None, None]
    median, size, low, high = found
    return [f"{median:+.0%}", f"{size:.0%}", f"{low:+.0%} to {high:+.0%}"]


def report(predictions: list[Prediction], left_out: Counter[str]) -> str:
    """Tables by source, model, hardware, batch and runtime, and what was left out."""
    closed = [prediction for prediction in predictions if prediction.row.load == "closed loop"]
    alone = [prediction for prediction in predictions if prediction.row.load == "alone"]
    parts = [grouped(predictions, lambda prediction: (prediction.row.source,), ["source"])]
    keys: list[tuple[str, list[Prediction], Callable[[Prediction], tuple[str, ...]]]] = [
        ("closed loop, model and kind", closed,
         lambda prediction: (prediction.row.model, prediction.row.quantization)),
        ("closed loop, hardware", closed, lambda prediction: (prediction.row.hardware,)),
        ("closed loop, runtime", closed, lambda prediction: (prediction.row.runtime,)),
        ("closed loop, batch", closed, lambda prediction: (_decade(prediction.row.batch),)),
        ("closed loop, bottleneck", closed, lambda prediction: (prediction.decode_bottleneck,)),
        ("alone, model, hardware, devices", alone,
         lambda prediction: (prediction.row.model, prediction.row.hardware,
                             str(prediction.row.tensor))),
    ]  # fmt: skip
    parts += [grouped(ones, key, [head]) for head, ones, key in keys if ones]
    inside, total = others_hold(closed)
    if total:
        parts.append(
            f"closed loop: bands made of all other models hold {inside} of {total} rows "
            f"({inside / total:.0%})"
        )
    parts.append(table(["left out", "rows"], [[why, count] for why, count in left_out.items()]))
    return "\n\n".join(parts)


def others_hold(predictions: list[Prediction]) -> tuple[int, int]:
    """Of how many rows the band of a model that was not looked at holds the measured TPOT.

    For each model the 10th and 90th percentiles of measured over planned of all other models are
    taken, by batch, as the catalog's constants are of all; how many rows of it are within, and how
    many it has.
    """
    ratios: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for prediction in predictions:
        if prediction.tpot_error is not None:
            ratios[prediction.row.model, _decade(prediction.row.batch)].append(
                1 / (1 + prediction.tpot_error)
            )
    inside = total = 0
    for (model, batch), own in ratios.items():
        others = [
            ratio
            for (name, size), found in ratios.items()
            if size == batch and name != model
            for ratio in found
        ]
        if len(others) >= QUANTILES:
            cuts = statistics.quantiles(others, n=QUANTILES, method="inclusive")
            inside += sum(cuts[0] <= ratio <= cuts[-1] for ratio in own)
            total += len(own)
    return inside, total


def _decade(batch: int) -> str:
    for low, high in ((1, 4), (5, 16), (17, 64), (65, 256)):
        if batch <= high:
            return f"{low:3} to {high}"
    return "above 256"


def row_table(predictions: list[Prediction]) -> str:
    """Every row: measured, predicted, error."""
    lines = []
    for prediction in predictions:
        row = prediction.row
        name = f"{row.model} {row.quantization} {row.tensor} x {row.hardware} {row.runtime}"
        times = [row.ttft_s, prediction.ttft_s, row.tpot_s, prediction.tpot_s]
        errors = [prediction.ttft_error, prediction.tpot_error]
        lines.append(
            [
                name, f"{row.prompt_tokens}+{row.output_tokens} x{row.batch}",
                *(number(None if time is None else time * 1e3, 1) for time in times),
                *(None if error is None else f"{error:+.0%}" for error in errors),
            ]
        )  # fmt: skip
    heads = ["model, kind, hardware, runtime", "load", "TTFT ms", "predicted", "TPOT ms"]
    return table([*heads, "predicted", "TTFT error", "TPOT error"], lines)


def main() -> None:
    """Read, predict, print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("hardware", type=Path, help="folder with silicon_sample.csv and the others")
    parser.add_argument("--rows", action="store_true", help="print every row")
    parser.add_argument("--out", type=Path, help="JSON of every row and its errors")
    options = parser.parse_args()
    catalog = Catalog.load()
    reading = read_all(catalog, options.hardware)
    tell(f"{len(reading.rows)} rows")
    predictions = predict_all(catalog, reading)
    print(report(predictions, reading.left_out))
    if options.rows:
        print(f"\n{row_table(predictions)}")
    if options.out is not None:
        rows: list[dict[str, Any]] = [
            {
                **asdict(prediction),
                "ttft_error": prediction.ttft_error,
                "tpot_error": prediction.tpot_error,
            }
            for prediction in predictions
        ]
        found = {"rows": rows, "left_out": dict(reading.left_out)}
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
