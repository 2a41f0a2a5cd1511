"""Click options made from the settings, and settings made from what was typed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from click.core import ParameterSource

from headrace.cli.sections import SectionOption, headings_of
from headrace.config import (
    EngineConfig,
    Flag,
    ServerConfig,
    build,
    expectation,
    flags_of,
    from_environment,
    parse_int,
    read_file,
)
from headrace.errors import ConfigError

C = TypeVar("C", bound=msgspec.Struct)
F = TypeVar("F", bound=Callable[..., Any])

PARSERS = frozenset({"tool_call_parser", "reasoning_parser"})
"""Settings of the server's that a conversation in this process has as well."""

# What a --config file may hold: one file serves every command, each takes what is its own.
CONFIGS: tuple[type[msgspec.Struct], ...] = (EngineConfig, ServerConfig)

_TYPES = {"str": click.STRING, "float": click.FLOAT}


def integer(
    ctx: click.Context,
    param: click.Parameter,
    value: Any,
    expected: str = "an integer (32768, 32k, 32K, 4G)",
) -> Any:
    """Option callback: 32768, 32k or 32K as an int; a usage error naming the flag otherwise."""
    if not isinstance(value, str):
        return value
    try:
        return parse_int(value)
    except (ValueError, OverflowError):
        message = f"{value!r} is not {expected}"
        raise click.BadParameter(message, ctx=ctx, param=param) from None


def _integer_or_auto(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    return value if value == "auto" else integer(ctx, param, value)


def _integer_callback(flag: Flag) -> Callable[..., Any]:
    """The option callback of a setting; sizes such as 32k are no example for a port."""
    if flag.auto:
        return _integer_or_auto
    return partial(integer, expected=expectation(flag)) if "≤" in flag.limits else integer


def _help(flag: Flag) -> str:
    notes = [flag.limits] if flag.limits else []
    if flag.repeated:
        notes.append("may be repeated")
    elif flag.default is not None and flag.default != "" and flag.kind != "bool":
        notes.append(f"default: {flag.default}")
    elif flag.kind == "bool":
        notes.append(f"default: {'on' if flag.default else 'off'}")
    return flag.help + (f" [{'; '.join(notes)}]" if notes else "")


def _option(flag: Flag, section: str | None) -> click.Option:
    about: dict[str, Any] = {"section": section, "help": _help(flag)}
    names = [flag.flag, *flag.aliases, flag.name]
    if flag.kind == "bool":
        names[0] += "/--no-" + flag.flag.removeprefix("--")
        return SectionOption(names, default=None, **about)
    if flag.kind == "int":
        return SectionOption(names, metavar="INTEGER", callback=_integer_callback(flag), **about)
    kind: Any = click.Choice(flag.choices) if flag.choices else _TYPES[flag.kind]
    return SectionOption(names, type=kind, multiple=flag.repeated, default=None, **about)


def settings(
    *configs: type[msgspec.Struct],
    skip: frozenset[str] = frozenset(),
    of_server: frozenset[str] = frozenset(),
) -> Callable[[F], F]:
    """Decorator: one option per setting of `configs`, and --config for a YAML file.

    skip: settings the command takes in another way (the model, as an argument). of_server:
    settings of `ServerConfig` that it takes as well.
    """

    def decorate(function: F) -> F:
        params: list[click.Parameter] = [
            click.Option(
                ["--config", "config_file"],
                type=click.Path(path_type=Path),
                help="YAML file with settings by name; flags override it.",
            )
        ]
        for config in configs:
            params += [
                _option(flag, section)
                for flag, section in headings_of(flags_of(config))
                if flag.name not in skip
            ]
        params += [
            _option(flag, section)
            for flag, section in headings_of(flags_of(ServerConfig))
            if flag.name in of_server
        ]
        # click keeps decorated parameters in reverse order of decoration
        existing = getattr(function, "__click_params__", [])
        function.__click_params__ = list(reversed(params)) + existing  # type: ignore[attr-defined]
        return function

    return decorate


def collect(
    ctx: click.Context,
    config: type[C],
    *,
    among: tuple[type[msgspec.Struct], ...] = (),
    overrides: dict[str, Any] | None = None,
    only: frozenset[str] | None = None,
) -> C:
    """`config` from flags, the --config file, the environment and defaults, in order of weight.

    among: every config the command takes, whose settings the file may therefore name.
    overrides: values the command itself knows (the model argument); they count as typed flags.
    only: the settings that the command takes; others keep their defaults. None for all.
    Raises click.UsageError for a typed value that no configuration takes, and ConfigError for
    what is wrong elsewhere or between settings.
    """
    names = {flag.name for flag in flags_of(config) if only is None or flag.name in only}
    typed = {
        name: value
        for name, value in ctx.params.items()
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    typed |= {name: value for name, value in (overrides or {}).items() if value is not None}
    config_file: Path | None = ctx.params.get("config_file")
    values = from_environment(config, os.environ)
    if config_file:
        values |= read_file(config_file, among or (config,))
    values |= typed
    source = "settings" if config_file is None else f"settings (flags and {config_file})"
    chosen = {name: value for name, value in values.items() if name in names}
    try:
        return build(config, chosen, source=source)
    except ConfigError:
        _check_typed(ctx, config, {name: value for name, value in typed.items() if name in names})
        raise


def _check_typed(
    ctx: click.Context, config: type[msgspec.Struct], values: Mapping[str, Any]
) -> None:
    """Raise click.UsageError for a value that is wrong by itself, as click does for its own."""
    for name, value in values.items():
        try:
            build(config, {name: value}, source="")
        except ConfigError as error:
            if isinstance(error.__cause__, msgspec.ValidationError):
                raise click.UsageError(str(error).removeprefix(": "), ctx) from None
