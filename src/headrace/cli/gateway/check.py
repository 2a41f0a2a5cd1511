"""`headrace gateway check`: whether a gateway's file is right, and all that is wrong with it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from headrace.errors import ConfigErrors, HeadraceError

if TYPE_CHECKING:
    from headrace.config.nested import Problem
    from headrace.gateway.building.gateway import Gateway
    from headrace.gateway.settings.gateway import GatewaySettings
    from headrace.gateway.settings.secret import Sources


class Checked(NamedTuple):
    """The result of checking a file."""

    settings: GatewaySettings | None
    """None if not even the names of the file are known."""
    built: Gateway | None
    """None if anything is wrong."""
    problems: tuple[str, ...]
    """All that do not follow from others."""


@click.command(short_help="Check a file and report everything that is wrong.")
@click.option(
    "--config",
    "config",
    type=click.Path(path_type=Path),
    default=Path("gateway.yaml"),
    help="The gateway's file. [default: gateway.yaml]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def check(ctx: click.Context, config: Path, as_json: bool) -> None:
    """Read a file as the gateway would, and report everything that is wrong with it. Sends nothing.

    Exit status 0: it would start; 1: it would not.
    """
    from headrace.gateway.settings.secret import Sources, missing_variables

    settings, built, problems = checked(config)
    if settings is None or built is None:
        missing = {} if settings is None else missing_variables(settings, os.environ)
        if as_json:
            told = {"right": False, "error": "\n".join(problems), "errors": problems,
                    "missing_variables": missing}  # fmt: skip
            click.echo(json.dumps(told))
        else:
            for problem in problems:
                click.echo(f"not valid: {problem}", err=True)
            if len(missing) > 1:
                listed = ", ".join(f"{name} ({setting})" for name, setting in missing.items())
                click.echo(f"these variables are not set in the environment: {listed}", err=True)
        ctx.exit(1)
    sources = Sources(os.environ, config.parent)
    warnings = [
        *_warnings_of_settings(settings, sources),
        *_warnings_of_admin(settings, sources),
        *_warnings_of_targets(settings, built),
    ]
    if as_json:
        models = list(built.router.routes)
        click.echo(json.dumps({"right": True, "models": models, "warnings": warnings}))
        return
    click.echo(
        f"valid: {_counted(len(built.router.routes), 'model')}, "
        f"{_counted(len(settings.providers), 'provider')}"
    )
    for warning in warnings:
        click.echo(f"warning: {warning}")


def checked(config: Path) -> Checked:
    """The file's form, its names, and what each of its parts needs, checked."""
    from headrace.gateway.assemble import made
    from headrace.gateway.settings.read import settings_partly
    from headrace.gateway.settings.secret import Sources

    try:
        settings, found = settings_partly(config)
    except HeadraceError as error:
        return Checked(None, None, (str(error),))
    problems = [one.said for one in found]
    if settings is None:
        return Checked(None, None, tuple(problems))
    for part in _parts(settings, Sources(os.environ, config.parent), found):
        problems += _said(part)
    built = None
    if not problems:
        try:
            built = made(config, settings, None)
        except HeadraceError as error:
            problems.append(str(error))
    return Checked(settings, built, tuple(problems))


def _parts(
    settings: GatewaySettings, sources: Sources, found: tuple[Problem, ...]
) -> Iterator[Callable[[], object]]:
    """Build each part in turn, and collect the HeadraceErrors of those that cannot be built.

    Parts that already have a problem are skipped: they have defaults in their place.
    """
    import msgspec

    from headrace.gateway.assemble import catalog_of
    from headrace.gateway.building import switched_on
    from headrace.gateway.building.accounts import check_access
    from headrace.gateway.building.gateway import providers_of

    wrong = {tuple(one.path.split(".")[:2]) for one in found}
    providers = {
        name: one
        for name, one in settings.providers.items()
        if ("providers", *name.split("."))[:2] not in wrong
    }
    some = msgspec.structs.replace(settings, providers=providers)
    by_section: dict[str, Callable[[], object]] = {
        "providers": lambda: providers_of(some, catalog_of(sources, settings), sources),
        "guardrails": lambda: switched_on.guardrails(settings, sources, time.time),
        "prompts": lambda: switched_on.prompts(settings, sources),
        "access": lambda: check_access(settings.access, sources),
        "alerts": lambda: _check_alerts(settings, sources),
        "ledger": lambda: _check_ledger(settings, sources),
        "request_log": lambda: _check_request_log(settings, sources),
        "admin": lambda: _check_admin(settings, sources),
    }
    sections = {one[0] for one in wrong}
    for section, part in by_section.items():
        if section == "providers" or section not in sections:
            yield part


def _said(part: Callable[[], object]) -> tuple[str, ...]:
    try:
        part()
    except ConfigErrors as errors:
        return errors.each
    except HeadraceError as error:
        return (str(error),)
    return ()


def _check_alerts(settings: GatewaySettings, sources: Sources) -> None:
    from headrace.gateway.alerts.sender import check_alerts

    check_alerts(settings.alerts, sources)


def _check_ledger(settings: GatewaySettings, sources: Sources) -> None:
    from headrace.gateway.ledger.schema import check_file

    if settings.ledger.path is not None:
        check_file(sources.folder / settings.ledger.path)


def _check_request_log(settings: GatewaySettings, sources: Sources) -> None:
    from headrace.gateway.building.request_log import check_request_log

    check_request_log(settings.request_log, sources)


def _check_admin(settings: GatewaySettings, sources: Sources) -> None:
    from headrace.gateway.admin.server import admin_key

    if settings.admin is not None:
        admin_key(settings.admin, sources)


def _warnings_of_settings(settings: GatewaySettings, sources: Sources) -> list[str]:
    from headrace.gateway.building.accounts import access_warnings
    from headrace.gateway.building.guards import guardrail_warnings
    from headrace.gateway.building.providers import plain_secrets
    from headrace.gateway.building.request_log import has_plain_url
    from headrace.gateway.settings.secret import is_plain

    plain: list[str] = []
    if settings.admin is not None and is_plain(settings.admin.key or "env:"):
        plain.append("admin.key")
    for name, provider in settings.providers.items():
        plain += plain_secrets(name, provider)
    if has_plain_url(settings.request_log):
        plain.append("request_log.url")
    return [
        *access_warnings(settings.access, sources),
        *(
            f"{place}: the secret is written into the file; write env:NAME or file:PATH instead"
            for place in plain
        ),
        *guardrail_warnings(settings),
    ]


def _warnings_of_admin(settings: GatewaySettings, sources: Sources) -> tuple[str, ...]:
    from headrace.gateway.admin.server import admin_warnings

    return () if settings.admin is None else admin_warnings(settings.admin, sources)


def _warnings_of_targets(settings: GatewaySettings, built: Gateway) -> list[str]:
    from headrace.gateway.building.parameters import parameter_warnings
    from headrace.gateway.building.providers import prompt_cache_warnings
    from headrace.protocol.dialects.openai_chat import OpenAIChatProvider
    from headrace.protocol.dialects.openai_chat.presets import OPENAI_API

    warnings = [
        f"providers.{name}: base_url has no path, and most servers have OpenAI's API under /v1; "
        f"if requests get a 404, write {one.base.origin}/v1"
        for name, one in built.providers.items()
        # The catalog's addresses are whole, and some services have paths of their own.
        if settings.providers[name].base_url is not None
        and not one.base.path
        and isinstance(one.side, OpenAIChatProvider)
        and one.side.variant.chat_path == OPENAI_API.chat_path
    ]
    warnings += parameter_warnings(built.router.routes, settings.unsupported)
    warnings += prompt_cache_warnings(settings, built.providers)
    priced = False
    for name, route in built.router.routes.items():
        for target in route.targets:
            if target.price is not None:
                continue
            here = target.provider.local
            own = here or target.provider.self_hosted
            priced |= not own
            why, cost = "", "`price: {input: USD, output: USD}` per million tokens"
            if here:
                why = " (its provider is on this machine; the catalog has vendors' prices)"
            if own:
                cost = "`price: {input: 0, output: 0}`, or your own cost of a million tokens"
            warnings.append(
                f"models.{name}: the price of {target.name} is unknown{why}; budgets refuse it "
                f"unless they allow unknown prices (give it a price: {cost})"
            )
    if priced:
        warnings.append(
            "prices of vendors' models: `headrace catalog import litellm FILE` imports "
            "LiteLLM's whole table, model_prices_and_context_window.json"
        )
    return warnings


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"
