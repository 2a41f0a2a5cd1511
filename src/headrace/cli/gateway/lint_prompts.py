"""`headrace gateway lint-prompts`: what keeps prompts out of providers' caches."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.visible import visible

if TYPE_CHECKING:
    from headrace.gateway.prompt_cache.lint import Finding
    from headrace.gateway.prompt_cache.prompt import Prompt
    from headrace.gateway.settings.gateway import GatewaySettings


@click.command("lint-prompts", short_help="Find what keeps prompts out of providers' caches.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    default=Path("gateway.yaml"),
    help="The gateway's file, from which models and prices are known. [default: gateway.yaml]",
)
@click.option(
    "--file",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file of requests, the body of one on each line. [default: the gateway's request log]",
)
@click.option(
    "--last",
    type=click.IntRange(2, 1_000_000),
    default=1000,
    show_default=True,
    help="How many requests to check: the newest of the log, the first of a file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each finding.")
def lint_prompts(config: Path, file: Path | None, last: int, as_json: bool) -> None:
    """Find what keeps the beginnings of prompts out of providers' caches.

    Providers charge a tenth of the price for tokens they have read before, as far as a prompt
    begins with the same tokens. Requests of one model and application are compared: what changes in
    the part that should stay the same (a date, a request id, tools in another order, a user's
    name), how many tokens follow it, what that costs per 1,000 requests at the catalog's prices,
    and what to do. For Anthropic's models also breakpoints (cache_control) that are missing, too
    many, too early or after a part that changes. Tokens are estimated by length. Sends nothing.

    \b
    headrace gateway lint-prompts --file requests.jsonl
    headrace gateway lint-prompts --last 5000 --json
    """
    import msgspec

    from headrace.catalog import Catalog
    from headrace.catalog.user_folder import folders
    from headrace.errors import ConfigError
    from headrace.gateway.assemble import made
    from headrace.gateway.prompt_cache.bodies import prompts_of_file
    from headrace.gateway.prompt_cache.known import known_of
    from headrace.gateway.prompt_cache.lint import findings_of
    from headrace.gateway.settings.read import read_settings

    settings = read_settings(config) if config.exists() or file is None else None
    if file is not None:
        prompts = list(prompts_of_file(file, last))
    else:
        assert settings is not None
        prompts = _logged(config, settings, last)
    if not prompts:
        raise ConfigError("there are no chat requests with bodies to check")
    built = None if settings is None else made(config, settings, None)
    named = () if settings is None else tuple(str(config.parent / one) for one in settings.catalog)
    catalog = Catalog.load(folders(os.environ, named))
    router = None if built is None else built.router
    today = dt.datetime.now(dt.UTC).date()
    try:
        found = findings_of(prompts, lambda model: known_of(model, catalog, router, today))
    finally:
        if built is not None:
            built.close()
    if as_json:
        for one in found:
            click.echo(msgspec.json.encode(one))
        return
    click.echo(f"{len(prompts):,} requests, {len(found)} findings")
    for one in found:
        click.echo(visible(_lines(one)))


def _logged(config: Path, settings: GatewaySettings, last: int) -> list[tuple[Prompt, str]]:
    from headrace.errors import ConfigError
    from headrace.gateway.building.request_log import request_log_of
    from headrace.gateway.prompt_cache.bodies import prompts_of_log
    from headrace.gateway.settings.secret import Sources

    log = request_log_of(settings.request_log, Sources(os.environ, config.parent), time.time)
    if log is None:
        raise ConfigError("the file has no request_log; name requests with --file")
    try:
        return asyncio.run(prompts_of_log(log, last))
    finally:
        log.close()


def _lines(one: Finding) -> str:
    cost = "cost unknown"
    if one.usd_per_1000_requests is not None:
        cost = f"${one.usd_per_1000_requests:,.2f} per 1,000 requests"
    whose = f" key {one.key}" if one.key else ""
    return "\n".join(
        (
            f"{one.kind}  {one.model}{whose}  {one.application!r}  {one.requests:,} requests",
            f"    {one.path}: {one.told}",
            f"    about {one.tokens:,} tokens a request, {cost}",
            f"    {one.advice}",
        )
    )
