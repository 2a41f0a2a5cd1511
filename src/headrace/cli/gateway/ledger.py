"""Where commands find the ledger: the file that the gateway's file names, or one that is given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from headrace.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])


def ledger_options(function: F) -> F:
    """Decorator: --config and --ledger."""
    function = click.option(
        "--ledger",
        type=click.Path(path_type=Path),
        help="The ledger's file, instead of the one that --config names.",
    )(function)
    return click.option(
        "--config",
        "config",
        type=click.Path(path_type=Path),
        default=Path("gateway.yaml"),
        help="The gateway's file. [default: gateway.yaml]",
    )(function)


def ledger_path(config: Path, ledger: Path | None) -> Path:
    """The ledger's file. Raises ConfigError if the gateway keeps none."""
    if ledger is not None:
        return ledger
    from headrace.gateway.settings.read import read_settings

    named = read_settings(config).ledger.path
    if named is None:
        raise ConfigError(
            f"{config}: no ledger is kept; write `ledger: {{path: ledger.sqlite3}}` into it and "
            "restart the gateway, or name a file with --ledger"
        )
    return config.parent / named


def dollars(nusd: int) -> str:
    """Nano-dollars as a number of dollars, exact: at least two decimals, at most nine."""
    from headrace.gateway.ledger import report

    return report.dollars(nusd)
