"""From what a model answered to scores, means and standard errors.

acc: the choice of the highest log likelihood is the right one; acc_norm, acc_bytes: the same of log
likelihoods over the choice's characters, its UTF-8 bytes. Of `loglikelihood`: acc is whether greedy
decoding writes the answer, perplexity exp(-mean of log likelihoods). exact_match: the filtered
answer is the right one. The standard error of a mean is s / sqrt(n), s with n - 1; perplexity's is
perplexity times that of the mean log likelihood (the harness draws it by a bootstrap).

Source: lm-evaluation-harness 0.4.13, lm_eval/api/task.py (process_results), api/metrics.py.
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Sequence

from headrace.eval.tasks.task_file import AnswerFilter, Metric
from headrace.eval.windows import exp_or_inf

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_DIGITS = str.maketrans("", "", string.digits)

Likelihood = tuple[float, bool]
"""The log likelihood of a continuation in nats, and whether greedy decoding writes it."""


def choice_scores(
    metrics: Sequence[Metric],
    choices: Sequence[str],
    target: int | str | list[int] | list[str],
    likelihoods: Sequence[Likelihood],
) -> dict[str, float]:
    """Of a multiple choice; a target that is none of the choices scores 0."""
    right = {
        choices.index(each) if isinstance(each, str) and each in choices else each
        for each in (target if isinstance(target, list) else [target])
    }
    sizes = {
        "acc": [1] * len(choices),
        "acc_norm": [len(choice) for choice in choices],
        "acc_bytes": [len(choice.encode("utf-8")) for choice in choices],
    }
    scores = {}
    for metric in metrics:
        # An empty choice has no length to be divided by, and is chosen where it is certain alone.
        each = [
            nats / size if size else (-math.inf if nats else math.inf)
            for (nats, _), size in zip(likelihoods, sizes[metric.name], strict=True)
        ]
        scores[metric.name] = float(each.index(max(each)) in right)
    return scores


def likelihood_scores(metrics: Sequence[Metric], likelihood: Likelihood) -> dict[str, float]:
    """Of one continuation; perplexity's is the log likelihood that its mean is of."""
    nats, greedy = likelihood
    values = {"acc": float(greedy), "perplexity": nats}
    return {metric.name: values[metric.name] for metric in metrics}


def match_scores(
    metrics: Sequence[Metric], answer: str, target: int | str | list[int] | list[str]
) -> dict[str, float]:
    """Of a generated answer that is filtered; one of several targets is enough."""
    targets = target if isinstance(target, list) else [target]
    return {
        metric.name: float(
            any(_plain(answer, metric) == _plain(str(right), metric) for right in targets)
        )
        for metric in metrics
    }


def filtered(answer: str, steps: AnswerFilter) -> str:
    """The answer after the steps of a filter."""
    for step in steps.steps:
        if step.function == "remove_whitespace":
            answer = answer.strip()
        elif step.function == "regex":
            answer = _found(answer, step.regex_pattern, step.group_select, step.fallback)
    return answer


def mean_with_error(name: str, values: Sequence[float]) -> tuple[float, float | None]:
    """The value of a metric over documents and its standard error; None of a single one."""
    count = len(values)
    mean = math.fsum(values) / count
    error = None
    if count > 1:
        squares = math.fsum((value - mean) ** 2 for value in values)
        error = math.sqrt(squares / (count - 1) / count)
    if name != "perplexity":
        return mean, error
    perplexity = exp_or_inf(-mean)
    return perplexity, None if error is None else perplexity * error


def _plain(text: str, metric: Metric) -> str:
    for pattern in metric.regexes_to_ignore:
        text = re.sub(pattern, "", text)
    if metric.ignore_case:
        text = text.lower()
    if metric.ignore_punctuation:
        text = text.translate(_PUNCTUATION)
    if metric.ignore_numbers:
        text = text.translate(_DIGITS)
    return text


def _found(answer: str, pattern: str, group: int, fallback: str) -> str:
    """One of the places where the pattern is found; of groups, the first that is not empty."""
    places = re.findall(pattern, answer)
    if not -len(places) <= group < len(places):
        return fallback
    place = places[group]
    if isinstance(place, tuple):
        place = next((part for part in place if part), fallback)
    return str(place).strip()
