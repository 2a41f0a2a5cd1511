"""A task put to a model: every document's requests together, then its scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from headrace.eval.tasks.prompts import Prompter
from headrace.eval.tasks.scores import (
    Likelihood,
    choice_scores,
    filtered,
    likelihood_scores,
    match_scores,
    mean_with_error,
)
from headrace.eval.tasks.task_file import Task

BATCH_DOCUMENTS = 64
"""Whose requests are handed to the model together: enough to fill any batch, and few enough that
answers are seen coming."""


class TaskModel(Protocol):
    """A model that tasks are put to."""

    def likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[Likelihood]:
        """Of each continuation behind its context."""
        ...

    def answers(self, prompts: Sequence[str], until: Sequence[str], max_tokens: int) -> list[str]:
        """The greedy answer to each prompt, ended before any of the texts in `until`."""
        ...


class Sample(msgspec.Struct, frozen=True, kw_only=True, rename={"filter_name": "filter"}):
    """One document's result, with the fields of the harness's samples file."""

    doc_id: int
    """From 0, in the data's order."""
    doc: dict[str, Any]
    target: int | str | list[Any]
    arguments: list[list[str]]
    """Context and continuation of each request, or the prompt alone."""
    resps: list[Any]
    """Log likelihood and whether it is greedy, of each; or the answer."""
    filter_name: str
    filtered_resps: list[Any]
    scores: dict[str, float]
    """By metric; of perplexity, the log likelihood."""


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """A metric over all documents."""

    metric: str
    filter: str
    value: float
    error: float | None
    """Standard error; None of a single document."""


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """The scores of a model in a task."""

    task: str
    num_fewshot: int
    documents: int
    """That were scored."""
    documents_in_all: int
    scores: tuple[Score, ...]
    samples: tuple[Sample, ...]


def run_task(
    task: Task,
    model: TaskModel,
    *,
    limit: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> TaskResult:
    """The result of the first `limit` documents, or of all.

    progress: documents done and in all. Raises ConfigError where a template does not fit them.
    """
    documents = task.documents[:limit]
    prompter = Prompter(task)
    samples: list[Sample] = []
    for first in range(0, len(documents), BATCH_DOCUMENTS):
        batch = documents[first : first + BATCH_DOCUMENTS]
        samples += _samples(task, prompter, model, batch, first)
        progress(first + len(batch), len(documents))
    scores = []
    for steps in task.filters:
        own = [sample.scores for sample in samples if sample.filter_name == steps.name]
        for metric in task.metrics:
            value, error = mean_with_error(metric.name, [each[metric.name] for each in own])
            scores.append(Score(metric=metric.name, filter=steps.name, value=value, error=error))
    return TaskResult(
        task=task.name,
        num_fewshot=task.num_fewshot,
        documents=len(documents),
        documents_in_all=len(task.documents),
        scores=tuple(scores),
        samples=tuple(samples),
    )


def harness_results(results: Sequence[TaskResult]) -> dict[str, Any]:
    """The results in the form of the harness's results file."""
    tasks: dict[str, dict[str, Any]] = {}
    for result in results:
        fields: dict[str, Any] = {"alias": result.task, "sample_len": result.documents}
        for score in result.scores:
            error = "N/A" if score.error is None else score.error
            fields[f"{score.metric},{score.filter}"] = score.value
            fields[f"{score.metric}_stderr,{score.filter}"] = error
        tasks[result.task] = fields
    return {
        "results": tasks,
        "n-shot": {result.task: result.num_fewshot for result in results},
        "n-samples": {
            result.task: {"original": result.documents_in_all, "effective": result.documents}
            for result in results
        },
    }


def sample_fields(sample: Sample) -> dict[str, Any]:
    """A line of the harness's samples file: scores stand beside the other fields."""
    fields: dict[str, Any] = msgspec.to_builtins(sample)
    scores = fields.pop("scores")
    return {**fields, "metrics": list(scores), **scores}


def _samples(
    task: Task,
    prompter: Prompter,
    model: TaskModel,
    documents: Sequence[dict[str, Any]],
    first: int,
) -> Iterator[Sample]:
    """Of documents that follow each other from number `first` on."""
    prompts = [prompter.prompt(document) for document in documents]
    targets = [prompter.target(document) for document in documents]
    if task.output_type == "generate_until":
        answers = model.answers(prompts, task.until, task.max_tokens)
        for at, answer in enumerate(answers):
            for steps in task.filters:
                found = filtered(answer, steps)
                yield Sample(
                    doc_id=first + at, doc=documents[at], target=targets[at],
                    arguments=[[prompts[at]]], resps=[answer], filter_name=steps.name,
                    filtered_resps=[found],
                    scores=match_scores(task.metrics, found, targets[at]),
                )  # fmt: skip
        return
    choices = _continuations(task, prompter, documents, targets)
    asked = [
        [(prompt, text) for text in texts] for prompt, texts in zip(prompts, choices, strict=True)
    ]
    found_all = iter(model.likelihoods([pair for pairs in asked for pair in pairs]))
    for at, pairs in enumerate(asked):
        likelihoods = [next(found_all) for _ in pairs]
        if task.output_type == "multiple_choice":
            texts = prompter.choices(documents[at])
            scores = choice_scores(task.metrics, texts, targets[at], likelihoods)
        else:
            scores = likelihood_scores(task.metrics, likelihoods[0])
        yield Sample(
            doc_id=first + at, doc=documents[at], target=targets[at],
            arguments=[list(pair) for pair in pairs], resps=[list(each) for each in likelihoods],
            filter_name=task.filters[0].name,
            filtered_resps=[list(each) for each in likelihoods], scores=scores,
        )  # fmt: skip


def _continuations(
    task: Task,
    prompter: Prompter,
    documents: Sequence[dict[str, Any]],
    targets: Sequence[int | str | list[Any]],
) -> list[list[str]]:
    """Texts whose likelihood is wanted, of each document."""
    if task.output_type == "loglikelihood":
        return [[str(target)] for target in targets]
    return [
        [task.target_delimiter + choice for choice in prompter.choices(document)]
        for document in documents
    ]
