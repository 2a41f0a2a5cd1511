"""How long requests are, by a run or by prompts and a tokenizer."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.plan.lint.subject import Subject


@dataclass(frozen=True)
class Lengths:
    """Lengths of requests in tokens."""

    tokens: tuple[int, ...]
    """Prompt and answer together, of each request."""
    prompts: tuple[int, ...]
    """The prompts alone."""
    where: str


def lengths_of(subject: Subject) -> Lengths | None:
    """Of the run where there is one, else of the prompts with what they allow as an answer."""
    if subject.run is not None:
        told = [one for one in subject.run.measured if one.prompt_tokens is not None]
        if told:
            return Lengths(
                tuple((one.prompt_tokens or 0) + (one.output_tokens or 0) for one in told),
                tuple(one.prompt_tokens or 0 for one in told),
                f"{subject.run.where}/requests.jsonl",
            )
    if subject.prompts is None or subject.tokenizer is None:
        return None
    counted = [
        (len(subject.encode(one.text) or ()), one.max_tokens or 0)
        for one in subject.prompts.prompts
    ]
    return Lengths(
        tuple(prompt + answer for prompt, answer in counted),
        tuple(prompt for prompt, _ in counted),
        f"{subject.prompts.where}, tokens of {subject.tokenizer_name}",
    )
