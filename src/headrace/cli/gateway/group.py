"""`headrace gateway`: one address for every model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click
from click.core import ParameterSource

from headrace.cli.gateway.cache_threshold import cache_threshold
from headrace.cli.gateway.check import check
from headrace.cli.gateway.compare import compare
from headrace.cli.gateway.feedback import feedback
from headrace.cli.gateway.guard_test import guard_test
from headrace.cli.gateway.import_config import import_file
from headrace.cli.gateway.keys.group import keys
from headrace.cli.gateway.lint_prompts import lint_prompts
from headrace.cli.gateway.log import log
from headrace.cli.gateway.prompts import prompts
from headrace.cli.gateway.replay import replay
from headrace.cli.gateway.requests import requests, show
from headrace.cli.gateway.stages import stages
from headrace.cli.gateway.usage import usage
from headrace.cli.visible import visible
from headrace.config.load import nearest
from headrace.errors import ConfigError, RequestError, shown

if TYPE_CHECKING:
    from headrace.gateway.routing.decision import Decision

_CONFIG = click.option(
    "--config",
    "config",
    type=click.Path(path_type=Path),
    default=Path("gateway.yaml"),
    help="The gateway's file. [default: gateway.yaml]",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(invoke_without_command=True)
@_CONFIG
@click.option("--host", help="Address to listen on, instead of the file's.")
@click.option("--port", type=int, help="Port to listen on, instead of the file's; 0: a free one.")
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    help="Processes that serve the port together, instead of the file's.",
)
@_JSON
@click.pass_context
def gateway(
    ctx: click.Context,
    config: Path,
    host: str | None,
    port: int | None,
    workers: int | None,
    as_json: bool,
) -> None:
    """Put one address in front of many providers and engines.

    \b
    headrace gateway                          serve what gateway.yaml defines
    headrace gateway check                    check that file
    headrace gateway explain chat             show the targets of a model; sends nothing
    """
    if ctx.invoked_subcommand is not None:
        _pass_on(ctx, ctx.invoked_subcommand)
        return
    from headrace.gateway.assemble import CliOverrides
    from headrace.gateway.run import run

    ctx.exit(run(config, CliOverrides(host, port, workers), as_json=as_json))


def _pass_on(ctx: click.Context, name: str) -> None:
    """Make options that stand before a subcommand its defaults; refuse those it does not have."""
    command = gateway.get_command(ctx, name)
    assert command is not None  # click found it
    given = {
        option: value
        for option, value in ctx.params.items()
        if ctx.get_parameter_source(option) is ParameterSource.COMMANDLINE
    }
    flags = {param.name: param.opts[0] for param in ctx.command.params}
    accepted = _option_names(command)
    for option in given:
        if option not in accepted:
            raise click.UsageError(
                f"{flags[option]} is not an option of `headrace gateway {name}`; it only has a "
                "meaning when the gateway is started"
            )
    ctx.default_map = {name: _defaults(command, given)}


def _option_names(command: click.Command) -> set[str | None]:
    """Of a command, and of its subcommands."""
    names: set[str | None] = {param.name for param in command.params}
    if isinstance(command, click.Group):
        names = names.union(*map(_option_names, command.commands.values()))
    return names


def _defaults(command: click.Command, given: dict[str, Any]) -> dict[str, Any]:
    """As `default_map` has them: those of subcommands by their name."""
    if not isinstance(command, click.Group):
        return given
    return given | {name: _defaults(sub, given) for name, sub in command.commands.items()}


@gateway.command(short_help="Show which targets would be tried for a model, and why.")
@click.argument("model")
@_CONFIG
@click.option(
    "--request",
    type=click.File("rb"),
    help="A chat completion's body as JSON, in which MODEL replaces the model; - is stdin. Its "
    "messages, provider, models and max_tokens count.",
)
@click.option(
    "--key", help="Id or label of the key to explain for: its models and data policy count."
)
@click.option(
    "--engines",
    is_flag=True,
    help="First read /metrics of the engines on which the choice depends.",
)
@_JSON
def explain(
    model: str,
    config: Path,
    request: BinaryIO | None,
    key: str | None,
    engines: bool,
    as_json: bool,
) -> None:
    """Show which targets would be tried for MODEL, in which order and why, and which not. Sends
    nothing.

    For a model made of others it also shows what would be chosen, and what each path costs and how
    long it takes: by prices, by the ledger, else by what the file states.

    \b
    headrace gateway explain chat
    headrace gateway explain chat:floor --request body.json --json
    headrace gateway explain auto --request - < body.json
    headrace gateway explain own --engines
    headrace gateway explain chat --key ci
    """
    from headrace.cli.gateway.expected import as_dict as composed_as_dict
    from headrace.cli.gateway.expected import of_composed, print_composed
    from headrace.cli.gateway.keys.named import caller_at
    from headrace.gateway.assemble import made
    from headrace.gateway.explaining import explanation_of
    from headrace.gateway.settings.read import read_settings

    settings = read_settings(config)
    built = made(config, settings, None)
    caller = None if key is None else caller_at(config, settings, key)
    body = b"{}" if request is None else request.read()
    if engines and built.pollers is not None:
        import asyncio

        asyncio.run(built.pollers.read_all())
    try:
        told = explanation_of(built, model, body, now_s=0.0, caller=caller)
    except RequestError as error:
        if error.code != "model_not_found":
            raise
        known = [*built.router.routes, *built.router.aliases]
        meant = nearest(model, known) or f"; it has {', '.join(known) or 'none'}"
        raise ConfigError(f"{shown(model)} is not a model of {config}{meant}") from error
    decision, said = told.decision, told.composed
    composed = None if said is None else of_composed(built, config, said, model, body)
    if told.note:
        click.echo(f"note: {visible(told.note)}", err=True)
    if as_json:
        more = {} if composed is None else composed_as_dict(*composed)
        click.echo(json.dumps({**_as_dict(decision), **more}))
        return
    if composed is not None:
        print_composed(*composed)
    if composed is None or composed[0].model is not None:
        _print(decision)


def _as_dict(decision: Decision) -> dict[str, Any]:
    return {
        "candidates": [
            {
                "target": candidate.target.name,
                "provider": candidate.target.provider.name,
                "model": candidate.model,
                "score": None
                if candidate.score in (float("inf"), float("-inf"))
                else candidate.score,
                "reasons": list(candidate.reasons),
                "variant": candidate.variant,
            }
            for candidate in decision.candidates
        ],
        "left_out": [one._asdict() for one in decision.left_out],
        "variant": decision.assigned,
    }


def _print(decision: Decision) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("", "target", "for", "why", title="tried in this order")
    for number, one in enumerate(decision.candidates, 1):
        table.add_row(str(number), one.target.name, one.model, "; ".join(one.reasons))
    console = Console()
    console.print(table)
    if decision.left_out:
        without = Table("target", "for", "why", title="not tried")
        for left in decision.left_out:
            without.add_row(left.target, left.model, left.reason)
        console.print(without)


gateway.add_command(check)
gateway.add_command(keys)
gateway.add_command(usage)
gateway.add_command(log)
gateway.add_command(stages)
gateway.add_command(requests)
gateway.add_command(show)
gateway.add_command(replay)
gateway.add_command(feedback)
gateway.add_command(compare)
gateway.add_command(import_file)
gateway.add_command(cache_threshold)
gateway.add_command(guard_test)
gateway.add_command(prompts)
gateway.add_command(lint_prompts)
