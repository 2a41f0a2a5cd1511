"""What a grammar costs: tokens per second of answers held to a schema beside free ones.

    python -m benchmarks.constrained_decode [MODEL] [--streams 1 8 32] [--rounds 7] [--json]

One process, one engine at a time, no server. Every stream writes `--tokens` tokens: free ones
whatever they like, the others an array of objects that is longer than that. Five kinds take turns
in every round, so that whatever else the machine does meets all of them: free, a token at a time
within the schema, and with the spans that the schema forces in one step, all without guesses, which
is what the schema itself costs; then free and within the schema as they are by default, with
guesses that adapt (`--speculative-config auto`), and with nothing known of earlier rounds. A ratio
is of kinds with the same guesses. A figure is the median over rounds of tokens per second, from the
first token of the last stream to the end; a ratio is the median of the rounds' own ratios. Spread
is the distance of the quartiles, in per cent of it.
The answers of all kinds within the schema have to be the same, and of both that are free, or the
program fails.

MODEL: a checkpoint, by default the model that ships in the package. `benchmarks/shaped_model.py`
writes one of a larger model's shape.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from benchmarks.markdown import surroundings, surroundings_line, table
from headrace.config import EngineConfig
from headrace.engine.core import EngineCore
from headrace.engine.load import load_engine
from headrace.engine.messages import Submit
from headrace.engine.params import SamplingParams
from headrace.structured.grammar import Grammar

SCHEMA = {
    "type": "array",
    "minItems": 400,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 16},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "kind": {"enum": ["customer", "supplier", "partner"]},
            "is_active": {"type": "boolean"},
        },
        "required": ["name", "age", "kind", "is_active"],
        "additionalProperties": False,
    },
}
Clock = Callable[[], float]
KINDS = ("free", "single", "spans", "free_guessed", "spans_guessed")
OF = {"single": "free", "spans": "free", "spans_guessed": "free_guessed"}
"""The free kind with which each kind within the schema is compared."""
GRAMMAR = Grammar("json_schema", json.dumps(SCHEMA))


class Answers:
    """The answers of one run, and how fast they came."""

    def __init__(self) -> None:
        self.token_ids: dict[str, list[int]] = {}
        self.tokens_per_s = 0.0


def run(
    core: EngineCore, streams: int, tokens: int, grammar: Grammar | None, clock: Clock
) -> Answers:
    """Decode on an engine that has nothing else to do."""
    answers = Answers()
    core.reset_prefix_cache()  # with it end past answers, which are the very same as the next ones
    for index in range(streams):
        params = SamplingParams(
            temperature=0.8, seed=index, max_tokens=tokens, ignore_eos=True, grammar=grammar
        )
        core.submit(Submit(str(index), [index % 200 + 1] * 8, params))
    begun_s, counted, total = -1.0, 0, 0
    while core.has_work:
        for output in core.step():
            assert output.error is None, output.error
            answers.token_ids.setdefault(output.request_id, []).extend(output.token_ids)
            total += len(output.token_ids)
        if begun_s < 0 and len(answers.token_ids) == streams:
            begun_s, counted = clock(), total
    assert all(len(ids) == tokens for ids in answers.token_ids.values())
    answers.tokens_per_s = (total - counted) / (clock() - begun_s)
    return answers


def measure(
    cores: dict[str, EngineCore], streams: int, tokens: int, rounds: int, clock: Clock
) -> dict[str, object]:
    """The figures of one number of streams."""
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for at in range(-1, rounds):
        found = {}
        for kind in KINDS if at % 2 else reversed(KINDS):
            found[kind] = run(cores[kind], streams, tokens, GRAMMAR if kind in OF else None, clock)
        assert found["single"].token_ids == found["spans"].token_ids, "spans changed an answer"
        for kind in ("free", "spans"):
            guessed = found[f"{kind}_guessed"].token_ids
            assert found[kind].token_ids == guessed, "guesses changed an answer"
        for kind in KINDS if at >= 0 else ():  # the first round compiles the schema
            rates[kind].append(found[kind].tokens_per_s)
    figures: dict[str, object] = {"streams": streams, "rounds": rounds}
    for kind, values in rates.items():
        figures[f"{kind}_tokens_per_s"] = statistics.median(values)
        figures[f"{kind}_spread_percent"] = spread(values)
    for kind, free_kind in OF.items():
        shares = [own / free for own, free in zip(rates[kind], rates[free_kind], strict=True)]
        figures[f"{kind}_of_free"] = statistics.median(shares)
        figures[f"{kind}_of_free_spread_percent"] = spread(shares)
    return figures


def spread(values: Sequence[float]) -> float:
    """The distance between the quartiles, in per cent of the median."""
    if len(values) < 2:
        return 0.0
    first, middle, third = statistics.quantiles(values, n=4)
    return 100 * (third - first) / middle


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("model", nargs="?", default="")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--tokens", type=int, default=192)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int)
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="seconds are those of all threads of the process, one of which computes: for a "
        "machine that does other things as well",
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    clock: Clock = time.process_time if options.cpu_time else time.perf_counter
    threads = 1 if options.cpu_time else options.threads
    facts = surroundings(datetime.now(UTC))

    def core_of(*, spans: bool, guesses: str = "none") -> EngineCore:
        config = EngineConfig(
            model=options.model, max_model_len=options.tokens + 64, threads=threads,
            max_num_seqs=max(options.streams), enable_forced_spans=spans,
            speculative_config=guesses,
        )  # fmt: skip
        return load_engine(config).core

    single, spans = core_of(spans=False), core_of(spans=True)
    guessed = core_of(spans=True, guesses="auto")
    cores = {
        "free": single, "single": single, "spans": spans,
        "free_guessed": guessed, "spans_guessed": guessed,
    }  # fmt: skip
    found = [
        measure(cores, streams, options.tokens, options.rounds, clock)
        for streams in options.streams
    ]
    if options.json:
        print(json.dumps({"surroundings": facts, "figures": found}))
        return
    columns = [
        "streams", "free, tokens/s", "single steps, of free", "with spans, of free",
        "free with guesses, tokens/s", "with spans and guesses, of that",
    ]  # fmt: skip
    rows = [
        [
            each["streams"],
            f"{each['free_tokens_per_s']:.0f} ±{each['free_spread_percent']:.0f} %",
            f"{each['single_of_free']:.2f} ±{each['single_of_free_spread_percent']:.0f} %",
            f"{each['spans_of_free']:.2f} ±{each['spans_of_free_spread_percent']:.0f} %",
            f"{each['free_guessed_tokens_per_s']:.0f} ±{each['free_guessed_spread_percent']:.0f} %",
            f"{each['spans_guessed_of_free']:.2f} "
            f"±{each['spans_guessed_of_free_spread_percent']:.0f} %",
        ]
        for each in found
    ]
    print(f"{table(columns, rows)}\n\n{surroundings_line(facts)}")


if __name__ == "__main__":
    main()
