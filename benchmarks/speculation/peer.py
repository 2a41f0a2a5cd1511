"""Speculation here and in llama-server, the same files and tasks in turns.

    python -m benchmarks.speculation.peer --llama FOLDER [MODEL.gguf] [--draft DRAFT.gguf]
        [--head FOLDER] [--mtp FOLDER] [--tasks NAME ...] [--prompts 8] [--tokens 160] [--json]

Each side is an engine with one kind of drafts, or with none: ours in this process, llama-server's
as processes of their own with their defaults. A prompt goes once through every side, one stream,
greedy, and the order turns round from prompt to prompt. No side ends early: tokens that end an
answer are left out on both. Past answers help where a side keeps them (ours: `suffix`; theirs:
ngram-mod), and as no prompt comes twice they are answers to others. With other work on the machine
`--threads 1` is fairer: threads that wait for each other lose most by it. A speed is of the tokens
behind the first one over the time since it, by our own clock here and by llama-server's timings
there, without HTTP. Printed for each side and task: median tokens per second, the median of each
prompt's ratio to the same program without drafts, with its interval of 95 %, and the share of
drafts that came; and of how many prompts the answer is the one without drafts. Ours has to be, or
the program fails. FOLDER is built by `python -m benchmarks.llamacpp.build FOLDER`.

EAGLE-3 heads (--head) and layers for further tokens in a folder of their own (--mtp) are ours
alone: llama.cpp reads the state behind the last layer, which both need, only of architectures whose
graphs give it, and its Qwen3 is none of them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from benchmarks.llamacpp.build import built
from benchmarks.llamacpp.server import servers, start_server, stop_server
from benchmarks.markdown import surroundings, surroundings_line, table, tell
from benchmarks.speculation.decoding import decode, in_words
from benchmarks.speculation.tasks import ROOT, TASKS, prompts
from headrace.config import EngineConfig
from headrace.embedded import embedded_model
from headrace.engine.core import EngineCore
from headrace.engine.load import load_engine
from headrace.engine.params import SamplingParams
from headrace.weights.open import open_checkpoint

DRAFT = ROOT / "models/headrace-draft/headrace-draft-q8_0.gguf"
HEAD = ROOT / "models/headrace-head"
MTP = ROOT / "models/headrace-mtp"
LOOKUPS = ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")
"""Kinds of llama-server's --spec-type that need no model."""
SHORT_LOOKUP = ("--spec-ngram-simple-size-n", "3", "--spec-ngram-simple-size-m", "8")
"""Tokens that have to match, and tokens of a draft: the defaults of 12 and 48 are for long texts of
larger models. Ours looks for 2 to 6 and drafts up to 16."""
CONTEXT_TOKENS = 2048


class Answer(NamedTuple):
    """What a side gave for one prompt."""

    token_ids: tuple[int, ...]
    tokens_per_s: float
    draft_tokens: int
    accepted_tokens: int


Side = Callable[[list[int]], Answer]


def ours(core: EngineCore, name: str, tokens: int, *, on: bool) -> Side:
    """A side of an engine of ours. name: of its salt, so that no side reads another's answers."""
    params = SamplingParams(temperature=0, max_tokens=tokens, min_tokens=tokens, speculation=on)

    def run(prompt: list[int]) -> Answer:
        found = decode(core, [prompt], [params], salt=name)
        return Answer(
            found.token_ids[0], found.tokens_per_s, found.draft_tokens, found.accepted_tokens
        )

    return run


def theirs(url: str, tokens: int) -> Side:
    """A side of a llama-server."""

    def run(prompt: list[int]) -> Answer:
        body = {
            "prompt": prompt, "n_predict": tokens, "temperature": 0, "ignore_eos": True,
            "cache_prompt": False, "return_tokens": True,
        }  # fmt: skip
        reply = httpx.post(f"{url}/completion", json=body, timeout=600.0)
        reply.raise_for_status()
        found = reply.json()
        timings, ids = found["timings"], tuple(found["tokens"])
        return Answer(
            ids,
            1e3 * (len(ids) - 1) / timings["predicted_ms"],
            timings.get("draft_n", 0),
            timings.get("draft_n_accepted", 0),
        )

    return run


def our_sides(options: argparse.Namespace) -> dict[str, Side]:
    """By name; the first is without drafts."""
    configs = {
        "default": "auto",
        "draft": {"model": str(options.draft)},
        "default and draft": {"method": "auto", "model": str(options.draft)},
        "head": {"model": str(options.head)},
        "mtp": {"model": str(options.mtp)},
        "default and mtp": {"method": "auto", "model": str(options.mtp)},
    }
    sides: dict[str, Side] = {}
    for name, config in configs.items():
        text = config if isinstance(config, str) else json.dumps(config)
        core, _ = load_engine(
            EngineConfig(
                model=options.model, speculative_config=text, max_num_seqs=1,
                max_model_len=CONTEXT_TOKENS, threads=options.threads,
            )
        )  # fmt: skip
        if not sides:
            sides["headrace: off"] = ours(core, "off", options.tokens, on=False)
        sides[f"headrace: {name}"] = ours(core, name, options.tokens, on=True)
    return sides


def their_sides(options: argparse.Namespace, stack: ExitStack) -> dict[str, Side]:
    """By name; the first is without drafts. The servers end with the stack."""
    flags: dict[str, Sequence[str]] = {"off": ()}
    flags |= {kind: ("--spec-type", kind) for kind in LOOKUPS}
    flags["ngram-simple, 3 and 8"] = ("--spec-type", "ngram-simple", *SHORT_LOOKUP)
    flags["draft-simple"] = (
        "--spec-type", "draft-simple", "--spec-draft-model", str(options.draft),
    )  # fmt: skip
    program = built(options.llama).tool("llama-server")
    usual = ("-c", str(CONTEXT_TOKENS), "-np", "1", "-t", str(options.threads), "--no-webui")
    sides: dict[str, Side] = {}
    for name, extra in flags.items():
        process, url = start_server(program, Path(options.model), [*usual, *extra])
        stack.callback(stop_server, process)
        sides[f"llama-server: {name}"] = theirs(url, options.tokens)
    return sides


def measure(sides: dict[str, Side], texts: Sequence[list[int]]) -> dict[str, list[Answer]]:
    """The answers of every side to every prompt but the first, which warms them up."""
    found: dict[str, list[Answer]] = {name: [] for name in sides}
    for number, text in enumerate(texts):
        for name in list(sides)[:: 1 if number % 2 else -1]:
            answer = sides[name](text)
            if number:
                found[name].append(answer)
    return found


def figures(found: dict[str, list[Answer]]) -> dict[str, dict[str, Any]]:
    """Of every side of one task. Raises AssertionError where drafts of ours changed an answer."""
    result = {}
    for name, answers in found.items():
        off = found[f"{name.partition(':')[0]}: off"]
        same = sum(a.token_ids == b.token_ids for a, b in zip(answers, off, strict=True))
        if name.startswith("headrace") and same != len(answers):
            raise AssertionError(f"{name} changed an answer")
        drafted = sum(answer.draft_tokens for answer in answers)
        result[name] = {
            "tokens_per_s": statistics.median(answer.tokens_per_s for answer in answers),
            "ratios": [a.tokens_per_s / b.tokens_per_s for a, b in zip(answers, off, strict=True)],
            "accepted_of_drafts":
                sum(answer.accepted_tokens for answer in answers) / drafted if drafted else None,
            "draft_tokens": drafted,
            "same_answers": same,
        }  # fmt: skip
    return result


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, allow_abbrev=False, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", nargs="?", default=str(embedded_model()), help="a GGUF file")
    parser.add_argument("--llama", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--draft", type=Path, default=DRAFT, help="GGUF file of a draft model")
    parser.add_argument("--head", type=Path, default=HEAD, help="folder of an EAGLE-3 head")
    parser.add_argument("--mtp", type=Path, default=MTP, help="folder of MTP layers")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--prompts", type=int, default=8, help="of each task, and one to warm up")
    parser.add_argument("--tokens", type=int, default=160, help="of an answer")
    parser.add_argument("--threads", type=int, default=2, help="of each side")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    facts = surroundings(datetime.now())
    checkpoint = open_checkpoint(options.model)
    by_task = {}
    with servers() as stack:
        sides = our_sides(options) | their_sides(options, stack)
        for task in options.tasks:
            tell(task)
            texts = prompts(task, options.prompts + 1, checkpoint)
            by_task[task] = figures(measure(sides, texts))
    if options.json:
        sys.stdout.write(json.dumps({"on": facts, "tasks": by_task}) + "\n")
        return 0
    lines = [
        [name, *(_cell(by_task[task][name]) for task in by_task),
         f"{sum(by_task[task][name]['same_answers'] for task in by_task)} of "
         f"{options.prompts * len(by_task)}"]
        for name in sides
    ]  # fmt: skip
    columns = ["tokens/s, of off, drafts that came", *by_task, "answers as without"]
    sys.stdout.write(f"{table(columns, lines)}\n\n{surroundings_line(facts)}\n")
    return 0


def _cell(found: dict[str, Any]) -> str:
    share = found["accepted_of_drafts"]
    came = "none made" if share is None else f"{100 * share:.0f} % of {found['draft_tokens']}"
    return f"{found['tokens_per_s']:.0f}, {in_words(found['ratios'])}, {came}"


if __name__ == "__main__":
    sys.exit(main())
