"""`headrace gateway`: one address for every model."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.gateway_cache_threshold import cache_threshold
from headrace.cli.gateway_compare import compare
from headrace.cli.gateway_feedback import feedback
from headrace.cli.gateway_guard_test import guard_test
from headrace.cli.gateway_import import import_file
from headrace.cli.gateway_keys import keys
from headrace.cli.gateway_lint_prompts import lint_prompts
from headrace.cli.gateway_log import log
from headrace.cli.gateway_prompts import prompts
from headrace.cli.gateway_replay import replay
from headrace.cli.gateway_requests import requests, show
from headrace.cli.gateway_stages import stages
from headrace.cli.gateway_usage import usage
from headrace.errors import HeadraceError

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
@click.option("--host", help="Address to listen on, in place of the file's.")
@click.option("--port", type=int, help="Port to listen on, in place of the file's; 0: a free one.")
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    help="Processes that serve on the port together, in place of the file's.",
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
    headrace gateway                          serve what gateway.yaml says
    headrace gateway check                    whether that file is right
    headrace gateway explain chat             who would be asked, and why; sends nothing
    """
    if ctx.invoked_subcommand is not None:
        return
    from headrace.gateway.making import Given
    from headrace.gateway.run import run

    ctx.exit(run(config, Given(host, port, workers), as_json=as_json))


@gateway.command()
@_CONFIG
@_JSON
@click.pass_context
def check(ctx: click.Context, config: Path, as_json: bool) -> None:
    """Read a file as the gateway would, and say what is wrong with it. Sends nothing.

    Exit status 0: it would start; 1: it would not.
    """
    from headrace.gateway.alerts.telling import check_alerts
    from headrace.gateway.building.accounts import access_warnings, check_access
    from headrace.gateway.building.guards import guardrail_warnings
    from headrace.gateway.building.providers import plain_secrets
    from headrace.gateway.building.request_log import check_request_log, has_plain_url
    from headrace.gateway.ledger.schema import check_file
    from headrace.gateway.making import made
    from headrace.gateway.settings.read import read_settings
    from headrace.gateway.settings.secret import Sources, is_plain, missing_variables

    settings = None
    try:
        settings = read_settings(config)
        built = made(config, settings, None)
        check_access(settings.access, Sources(os.environ, config.parent))
        check_alerts(settings.alerts, Sources(os.environ, config.parent))
        if settings.ledger.path is not None:
            check_file(config.parent / settings.ledger.path)
        check_request_log(settings.request_log, Sources(os.environ, config.parent))
        if settings.admin is not None:
            from headrace.gateway.building.admin import admin_key

            admin_key(settings.admin, Sources(os.environ, config.parent))
    except HeadraceError as error:
        missing = {} if settings is None else missing_variables(settings, os.environ)
        if as_json:
            told = {"right": False, "error": str(error), "missing_variables": missing}
            click.echo(json.dumps(told))
        else:
            click.echo(f"not right: {error}", err=True)
            if len(missing) > 1:
                listed = ", ".join(f"{name} ({setting})" for name, setting in missing.items())
                click.echo(f"the environment has none of: {listed}", err=True)
        ctx.exit(1)
    warnings = access_warnings(settings.access)
    if settings.admin is not None and is_plain(settings.admin.key or "env:"):
        warnings.append("admin.key: the secret stands in the file; write env:NAME or file:PATH")
    for name, provider in settings.providers.items():
        warnings += [
            f"{field}: the secret stands in the file; write env:NAME or file:PATH"
            for field in plain_secrets(name, provider)
        ]
    warnings += guardrail_warnings(settings)
    if has_plain_url(settings.request_log):
        warnings.append(
            "request_log.url: the secret stands in the file; write env:NAME or file:PATH"
        )
    for name, route in built.router.routes.items():
        for target in route.targets:
            if target.price is None:
                warnings.append(
                    f"models.{name}: the price of {target.name} is not known; budgets refuse it "
                    "unless they allow what has none (give it a price)"
                )
    told = {"right": True, "models": list(built.router.routes), "warnings": warnings}
    if as_json:
        click.echo(json.dumps(told))
        return
    click.echo(f"right: {len(built.router.routes)} models, {len(settings.providers)} providers")
    for one in warnings:
        click.echo(f"warning: {one}")


@gateway.command()
@click.argument("model")
@_CONFIG
@click.option(
    "--request",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A request's body as JSON; its provider, models and max_tokens count.",
)
@click.option("--engines", is_flag=True, help="First read /metrics of engines that it goes by.")
@_JSON
def explain(model: str, config: Path, request: Path | None, engines: bool, as_json: bool) -> None:
    """Say who would be asked for MODEL, in which order and why, and who would not. Sends nothing.

    Of a model made of others also what would be chosen, and what each way costs and how long it
    takes: by prices, by the ledger, else by what the file states.

    \b
    headrace gateway explain chat
    headrace gateway explain chat:floor --request body.json --json
    headrace gateway explain own --engines
    """
    from headrace.cli.gateway_expected import as_dict as composed_as_dict
    from headrace.cli.gateway_expected import of_composed, print_composed
    from headrace.gateway.making import made
    from headrace.gateway.routing.explain import decision_of
    from headrace.gateway.settings.read import read_settings

    built = made(config, read_settings(config), None)
    body = b"{}" if request is None else request.read_bytes()
    if engines and built.pollers is not None:
        import asyncio

        asyncio.run(built.pollers.read_all())
    decision = decision_of(built.router, model, body, now_s=0.0)
    composed = of_composed(built, config, model, body)
    if composed is not None and composed[0].model is not None:
        decision = decision_of(built.router, composed[0].model, body, now_s=0.0)
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
                "target": one.target.name,
                "provider": one.target.provider.name,
                "model": one.model,
                "score": None if one.score in (float("inf"), float("-inf")) else one.score,
                "reasons": list(one.reasons),
                "variant": one.variant,
            }
            for one in decision.candidates
        ],
        "left_out": [one._asdict() for one in decision.left_out],
        "variant": decision.assigned,
    }


def _print(decision: Decision) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("", "target", "for", "why", title="asked in this order")
    for number, one in enumerate(decision.candidates, 1):
        table.add_row(str(number), one.target.name, one.model, "; ".join(one.reasons))
    console = Console()
    console.print(table)
    if decision.left_out:
        without = Table("target", "for", "why", title="not asked")
        for left in decision.left_out:
            without.add_row(left.target, left.model, left.reason)
        console.print(without)


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
