"""The sampling flags `generate` and `chat` share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.cli.options import integer
from headrace.cli.sections import SectionOption
from headrace.engine.params import RANGES, SAMPLERS

if TYPE_CHECKING:
    from headrace.offline.params import SamplingParams
    from headrace.offline.structured import StructuredOutputsParams

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS: tuple[tuple[str, Any, str], ...] = (
    ("--max-tokens", integer, "Maximum number of new tokens; default: up to the model's length."),
    (
        "--temperature",
        click.FLOAT,
        "Sampling temperature; 0 is greedy. [default: the model's, or 1.0]",
    ),
    (
        "--top-k",
        click.INT,
        "Keep the k most likely tokens; 0 and -1 keep all. [default: the model's, or 0]",
    ),
    (
        "--top-p",
        click.FLOAT,
        "Keep the most likely tokens that together reach p; 0 keeps one. "
        "[default: the model's, or 1.0]",
    ),
    (
        "--min-p",
        click.FLOAT,
        "Keep tokens at least this likely, relative to the most likely one. "
        "[default: the model's, or 0.0]",
    ),
    (
        "--repetition-penalty",
        click.FLOAT,
        "Divide the logits of tokens in the prompt or output by this (multiply negative "
        "ones); above 1 makes them rarer. [default: the model's, or 1.0]",
    ),
    (
        "--frequency-penalty",
        click.FLOAT,
        "Subtracted from a token's logit for each time it is in the output. [default: 0.0]",
    ),
    (
        "--presence-penalty",
        click.FLOAT,
        "Subtracted once from a token's logit if it is in the output. [default: 0.0]",
    ),
    (
        "--min-tokens",
        integer,
        "Minimum number of new tokens before the end. [default: 0]",
    ),
    (
        "--samplers",
        click.STRING,
        "Order of the samplers, comma-separated; one that is omitted must have nothing to "
        f"do. [default: {','.join(SAMPLERS)}]",
    ),
    (
        "--thinking-token-budget",
        integer,
        "Most tokens of reasoning, at whose end it is closed and the answer follows; 0 begins the "
        "answer at once. [default: no limit]",
    ),
    ("--seed", click.INT, "Seed of the random numbers; the same seed gives the same text."),
)


def _name(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _limits(name: str) -> tuple[float, float]:
    if name in RANGES:
        return RANGES[name]
    # Read only here: a command line without it does not wait for what knows reasoning.
    from headrace.offline.thinking import BUDGET_RANGE

    return BUDGET_RANGE


def _in_range(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Option callback: the value, or a usage error naming the limits; they are the engine's."""
    least, most = _limits(str(param.name))
    if value is not None and not least <= value <= most:
        message = f"{value} is out of range; it must be from {least} to {most}"
        raise click.BadParameter(message, ctx=ctx, param=param)
    return value


def _integer_in_range(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    return _in_range(ctx, param, integer(ctx, param, value))


def _samplers(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Option callback: the names, in order, or a usage error with those that there are."""
    if not isinstance(value, str):
        return value
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    for name in names:
        if name not in SAMPLERS or names.count(name) > 1:
            problem = "comes twice" if name in SAMPLERS else "is not a sampler"
            message = f"{name!r} {problem}; give each of these at most once: {', '.join(SAMPLERS)}"
            raise click.BadParameter(message, ctx=ctx, param=param)
    return names


def _kind(flag: str, kind: Any) -> dict[str, Any]:
    """How click reads and checks one of `_OPTIONS`."""
    if kind is integer:
        return {"metavar": "INTEGER", "callback": _integer_in_range}
    if flag == "--samplers":
        return {"metavar": "NAMES", "callback": _samplers}
    return {"type": kind, "callback": _in_range}


def sampling_options(function: F) -> F:
    """Decorator: one option per sampling parameter, and --stop."""
    kinds: list[tuple[str, dict[str, Any]]] = [
        (flag, _kind(flag, kind) | {"help": text}) for flag, kind, text in _OPTIONS
    ]
    kinds.append(("--stop", {"multiple": True, "help": "Stop at this text. [may be repeated]"}))
    for flag, about in reversed(kinds):
        function = click.option(flag, cls=SectionOption, section="Sampling", **about)(function)
    return function


def sampling_params(
    values: dict[str, Any], form: StructuredOutputsParams | None = None
) -> SamplingParams:
    """The parameters typed among `values`; what was not typed keeps its default, or the model's.

    form: what answers are held to.
    """
    from headrace.offline.params import SamplingParams

    names = [_name(flag) for flag, _, _ in _OPTIONS]
    typed = {name: values[name] for name in names if values.get(name) is not None}
    return SamplingParams(**{"max_tokens": None, "structured_outputs": form} | typed)
