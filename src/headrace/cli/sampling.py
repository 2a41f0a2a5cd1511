"""The sampling flags `generate` and `chat` share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.cli.options import integer
from headrace.engine.params import RANGES

if TYPE_CHECKING:
    from headrace.engine.params import SamplingParams

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS: tuple[tuple[str, Any, str], ...] = (
    ("--max-tokens", integer, "Most new tokens; default: up to the model's length."),
    ("--temperature", click.FLOAT, "0 is greedy. [default: 1.0]"),
    ("--top-k", click.INT, "Keep the k most likely tokens; 0 and -1 keep all. [default: 0]"),
    (
        "--top-p",
        click.FLOAT,
        "Keep the likeliest tokens that together reach p; 0 keeps one. [default: 1.0]",
    ),
    (
        "--min-p",
        click.FLOAT,
        "Keep tokens at least this likely, relative to the likeliest. [default: 0.0]",
    ),
    ("--seed", click.INT, "Of the random stream; the same seed gives the same text."),
)


def _name(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _in_range(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Option callback: the value, or a usage error naming the limits; they are the engine's."""
    least, most = RANGES[str(param.name)]
    if value is not None and not least <= value <= most:
        message = f"{value} is out of range; from {least} to {most} is accepted"
        raise click.BadParameter(message, ctx=ctx, param=param)
    return value


def sampling_options(function: F) -> F:
    """Decorator: one option per sampling parameter, and --stop."""
    stop = click.option("--stop", multiple=True, help="End at this text. [may be repeated]")
    function = stop(function)
    for flag, kind, text in reversed(_OPTIONS):
        if kind is integer:
            option = click.option(flag, metavar="INTEGER", callback=integer, help=text)
        else:
            option = click.option(flag, type=kind, callback=_in_range, help=text)
        function = option(function)
    return function


def sampling_params(values: dict[str, Any]) -> SamplingParams:
    """The parameters typed among `values`; what was not typed keeps its default."""
    from headrace.engine.params import SamplingParams

    names = [_name(flag) for flag, _, _ in _OPTIONS]
    typed = {name: values[name] for name in names if values.get(name) is not None}
    return SamplingParams(**{"max_tokens": None} | typed)
