"""`headrace gateway prompts`: the file's prompt templates, shown and rendered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.visible import visible
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.gateway.prompts.prompt import Prompt
    from headrace.gateway.prompts.prompts import Prompts

_CONFIG = click.option(
    "--config",
    type=click.Path(path_type=Path),
    default=Path("gateway.yaml"),
    help="The gateway's file. [default: gateway.yaml]",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(short_help="List, show and render the prompt templates.")
def prompts() -> None:
    """Show the prompt templates of the gateway's file, and how they are rendered. Sends nothing.

    A request names one by `"prompt": {"id": "support", "variables": {...}}`, with a version or a
    label; without either it gets the label production, else the highest version.

    \b
    headrace gateway prompts list
    headrace gateway prompts show support
    headrace gateway prompts render support --version 2 --var name=Ada
    """


@prompts.command("list")
@_CONFIG
@_JSON
def list_prompts(config: Path, as_json: bool) -> None:
    """List prompts with their versions and labels.

    Labels that point to several versions show the weight of each.

    \b
    headrace gateway prompts list
    headrace gateway prompts list --json
    """
    every = [_summary(one) for one in _prompts(config).by_name.values()]
    if as_json:
        click.echo(json.dumps(every))
        return
    for one in every:
        labels = "; ".join(
            f"{label}: {', '.join(f'{name} ({weight:g})' for name, weight in versions.items())}"
            for label, versions in one["labels"].items()
        )
        versions = ", ".join(one["versions"])
        click.echo(visible(f"{one['name']}: versions {versions}{f'; {labels}' if labels else ''}"))


@prompts.command(short_help="Show every version of a prompt.")
@click.argument("name")
@_CONFIG
@_JSON
def show(name: str, config: Path, as_json: bool) -> None:
    """Show every version of the prompt NAME: its variables, model and parameters.

    The texts themselves are in the file; `render` shows them as a model would get them.

    \b
    headrace gateway prompts show support
    headrace gateway prompts show support --json
    """
    prompt = _prompt(config, name)
    if as_json:
        click.echo(json.dumps({**_summary(prompt), "versions": _versions(prompt)}))
        return
    for version in _versions(prompt):
        click.echo(visible(f"{prompt.name}@{version['version']}"))
        click.echo(visible(f"  variables: {', '.join(version['variables']) or 'none'}"))
        click.echo(visible(f"  model: {version['model'] or 'as the request says'}"))
        click.echo(visible(f"  parameters: {json.dumps(version['parameters'])}"))
        click.echo(f"  messages: {', '.join(version['roles'])}")


@prompts.command(short_help="Render a prompt with variables.")
@click.argument("name")
@click.option("--version", help="Render this version. [default: as for a request that names none]")
@click.option("--label", help="Render the version of this label.")
@click.option("--var", "given", multiple=True, metavar="NAME=VALUE", help="A variable's text.")
@_CONFIG
@_JSON
def render(
    name: str,
    version: str | None,
    label: str | None,
    given: tuple[str, ...],
    config: Path,
    as_json: bool,
) -> None:
    """Render the prompt NAME with variables, as it is put before the client's messages.

    Variables that are missing or unknown are an error that names them.

    \b
    headrace gateway prompts render support --var name=Ada
    headrace gateway prompts render support --label staging --var name=Ada --json
    """
    prompt = _prompt(config, name)
    if version is not None and label is not None:
        raise ConfigError("--version and --label: give only one of them")
    variables = dict(_variable(one) for one in given)
    found = prompt.version(version) if version is not None else prompt.labelled(label, "")
    said = found.said(variables)
    if as_json:
        messages = [{"role": one.role, "content": one.text} for one in said]
        click.echo(json.dumps({"prompt": found.full_name, "messages": messages}))
        return
    for one in said:
        click.echo(f"{one.role}:")
        for line in one.text.splitlines() or [""]:
            click.echo(f"  {visible(line)}")


def _variable(text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not mark or not name:
        raise ConfigError(f"--var {text}: expected NAME=VALUE")
    return name, value


def _prompts(config: Path) -> Prompts:
    from headrace.gateway.building.prompts import prompts_of
    from headrace.gateway.settings.read import read_settings

    found = prompts_of(read_settings(config), config.parent)
    if found is None:
        raise ConfigError(f"{config}: it has no prompts; write prompts or prompts_folder")
    return found


def _prompt(config: Path, name: str) -> Prompt:
    from headrace.config.load import nearest

    by_name = _prompts(config).by_name
    if name not in by_name:
        meant = nearest(name, by_name) or f"; there are {', '.join(by_name)}"
        raise ConfigError(f"{config}: it has no prompt {name}{meant}")
    return by_name[name]


def _summary(prompt: Prompt) -> dict[str, Any]:
    return {
        "name": prompt.name,
        "versions": list(prompt.versions),
        "labels": {label: dict(versions) for label, versions in prompt.labels.items()},
    }


def _versions(prompt: Prompt) -> list[dict[str, Any]]:
    return [
        {
            "version": version.name,
            "variables": list(version.variables),
            "model": version.model,
            "parameters": dict(version.parameters),
            "roles": [message.role for message in version.messages],
        }
        for version in prompt.versions.values()
    ]
