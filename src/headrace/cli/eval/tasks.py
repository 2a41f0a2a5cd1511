"""`headrace eval tasks`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.json_line import print_json

if TYPE_CHECKING:
    from headrace.eval.tasks.run import TaskResult
    from headrace.llm import LLM


@click.command(short_help="Score answers to questions, in lm-evaluation-harness's formats.")
@click.argument("model", required=False, default="")
@click.option(
    "--task",
    "paths",
    required=True,
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Task file of lm-evaluation-harness (YAML) over local data. Repeatable.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path, dir_okay=False),
    help="JSON or JSON lines file with the documents, in place of the one that the task names.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Documents of each task. [default: all]")
@click.option(
    "--num-fewshot",
    type=click.IntRange(0, 1000),
    help="Number of examples in a prompt. [default: the task's]",
)
@click.option(
    "--log-samples",
    "samples",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a JSON line for each document to this file, as the harness does.",
)
@click.option("--max-model-len", type=click.IntRange(min=2), help="Most tokens of a request.")
@click.option("-t", "--threads", type=click.IntRange(1, 1024), help="Compute threads.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object in the harness's form."
)
def tasks(
    model: str,
    paths: tuple[Path, ...],
    data: Path | None,
    limit: int | None,
    num_fewshot: int | None,
    samples: Path | None,
    max_model_len: int | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Put the questions of tasks to MODEL and print what it scores, with standard errors.

    Tasks are multiple choice (acc, acc_norm by characters, acc_bytes), loglikelihood (acc,
    perplexity) or generate_until (exact_match), and run in the engine, many documents at once.
    Without MODEL, the small model that ships in the package is used.

    \b
    headrace eval tasks ./model.gguf --task gsm8k.yaml --limit 100
    headrace eval tasks ./model.gguf --task lambada.yaml --data lambada_test.jsonl --json
    """
    import msgspec

    from headrace.cli.counting import counting
    from headrace.errors import ConfigError
    from headrace.eval.tasks.run import harness_results, run_task, sample_fields
    from headrace.eval.tasks.task_file import read_task
    from headrace.llm import LLM

    if data is not None and len(paths) > 1:
        raise ConfigError(f"--data {data} is of one task, and --task names {len(paths)}")
    read = [read_task(path, data=data, num_fewshot=num_fewshot) for path in paths]
    names = [task.name for task in read]
    if len(set(names)) < len(names):
        raise ConfigError(f"two files have tasks of one name: {', '.join(names)}; name each once")
    answering = _EngineModel(LLM(model, threads=threads, max_model_len=max_model_len))
    results = []
    for task in read:
        with counting(task.name) as progress:
            results.append(run_task(task, answering, limit=limit, progress=progress))
    if samples is not None:
        lines = [
            {"task": result.task, **sample_fields(sample)}
            for result in results
            for sample in result.samples
        ]
        _write(samples, b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    if answering.cut:
        click.echo(
            f"{answering.cut} prompts were longer than the model's {answering.longest} tokens and "
            "lost their beginnings",
            err=True,
        )
    if as_json:
        print_json(harness_results(results))
    else:
        _print_table(results)


class _EngineModel:
    """A model that tasks are put to: an LLM in this process.

    As in the harness, the tokens of a continuation are those of context and continuation together
    behind as many as the context has alone, and stand behind the context's own, also where a token
    would span both; its trailing spaces count with the continuation. What is too long loses its
    beginning.
    """

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self.longest = llm.info.max_model_len
        self.cut = 0

    def likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[float, bool]]:
        """Of each continuation behind its context."""
        from headrace.offline.params import SamplingParams

        encoded = [self._encoded(*pair) for pair in pairs]
        params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0)
        results = self._llm.generate([ids for ids, _ in encoded], params, progress=False)
        found = []
        for (ids, first), result in zip(encoded, results, strict=True):
            self._check(result.error)
            scores = [score for score in (result.prompt_logprobs or ())[first:] if score]
            assert len(scores) == len(ids) - first
            nats = sum(score.logprob for score in scores)
            found.append((nats, all(score.rank == 1 for score in scores)))
        return found

    def answers(self, prompts: Sequence[str], until: Sequence[str], max_tokens: int) -> list[str]:
        """The greedy answer to each prompt, ended before any of the texts in `until`."""
        from headrace.offline.params import SamplingParams

        room = max(1, min(max_tokens, self.longest // 2))
        encoded = [self._kept(self._ids(prompt), self.longest - room)[0] for prompt in prompts]
        params = SamplingParams(temperature=0.0, max_tokens=room)
        results = self._llm.generate(encoded, params, stop=list(until), progress=False)
        for result in results:
            self._check(result.error)
        return [_ended(result.text, until) for result in results]

    def _encoded(self, context: str, continuation: str) -> tuple[list[int], int]:
        """Ids of both, and where the continuation begins."""
        spaces = len(context) - len(context.rstrip())
        if spaces:
            context, continuation = context[:-spaces], context[-spaces:] + continuation
        whole = self._ids(context + continuation)
        alone = self._ids(context) if context else []
        first = len(alone)
        whole[:first] = alone
        if not first:
            # What nothing precedes has no likelihood: the beginning or end of text precedes it.
            tokenizer = self._llm.tokenizer
            ends = tokenizer.eos_token_ids
            begin = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else min(ends)
            whole, first = ([begin, *whole] if whole[:1] != [begin] else whole), 1
        ids, dropped = self._kept(whole, self.longest - 1)
        return ids, max(1, first - dropped)

    def _ids(self, text: str) -> list[int]:
        return self._llm.tokenizer.encode(text, add_special_tokens=True, parse_special=False)

    def _kept(self, ids: list[int], most: int) -> tuple[list[int], int]:
        """The last `most` ids, and how many are left out."""
        dropped = max(0, len(ids) - most)
        self.cut += bool(dropped)
        return ids[dropped:], dropped

    def _check(self, error: str | None) -> None:
        from headrace.errors import HeadraceError

        if error is not None:
            raise HeadraceError(f"a request failed: {error}")


def _ended(text: str, until: Sequence[str]) -> str:
    for stop in until:
        text = text.split(stop)[0]
    return text


def _write(path: Path, content: bytes) -> None:
    from headrace.atomic_file import atomic_file
    from headrace.errors import HeadraceError

    try:
        with atomic_file(path) as file:
            file.write(content)
    except OSError as error:
        raise HeadraceError(f"{path}: {error.strerror}") from error


def _print_table(results: Sequence[TaskResult]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None)
    for index, name in enumerate(("task", "documents", "shots", "filter", "metric", "value", "")):
        table.add_column(name, justify="right" if index in (1, 2, 5) else "left")
    for result in results:
        shown: list[Any] = [result.task, f"{result.documents:,}", str(result.num_fewshot)]
        for score in result.scores:
            error = "" if score.error is None else f"± {score.error:.4f}"
            table.add_row(*shown, score.filter, score.metric, f"{score.value:.4f}", error)
            shown = ["", "", ""]
    Console(soft_wrap=True).print(table)
