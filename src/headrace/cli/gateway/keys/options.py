"""Options that give a key its models, budget and limits, for `keys create` and `keys edit`."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.numbers import NumberRange

if TYPE_CHECKING:
    from headrace.gateway.accounts.window import WindowName
    from headrace.gateway.settings.gateway import GatewaySettings

MS_PER_DAY = 86_400_000
WINDOWS: tuple[WindowName, ...] = ("1m", "5m", "1h", "1d", "1w", "1M", "1Y", "total")
DEFAULT_WINDOW: WindowName = "1M"
# Ten years; beyond it a key never ends.
_MOST_DAYS = 3650
_MOST_USD = 1e9
_MOST_NAMED = 8
TAKEN_AWAY = "none"


class Dollars(click.ParamType):  # type: ignore[type-arg]  # no generic before click 8.2
    """An amount of US dollars that a budget may have."""

    name = "usd"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """See click."""
        try:
            dollars = float(value)
        except ValueError:
            dollars = math.nan
        if not 0 <= dollars <= _MOST_USD:
            self.fail(
                f"{value!r} is not an amount of US dollars from 0 to 1,000,000,000", param, ctx
            )
        return dollars


class Until(click.ParamType):  # type: ignore[type-arg]
    """A moment: the end of a day, or a time of it; in UTC, as milliseconds since 1970."""

    name = "day or time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """See click."""
        try:
            at = dt.datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"{value!r} is not a day like 2026-12-31 or a time like 2026-12-31T18:00",
                param,
                ctx,
            )
        if at.tzinfo is None:
            at = at.replace(tzinfo=dt.UTC)
        return round(at.timestamp() * 1000) + _is_day(value) * MS_PER_DAY


def _is_day(value: str) -> bool:
    try:
        dt.date.fromisoformat(value)
    except ValueError:
        return False
    return True


class OrNone(click.ParamType):  # type: ignore[type-arg]
    """A parameter type that also accepts the word `none`, which it returns unchanged."""

    def __init__(self, kind: click.ParamType) -> None:  # type: ignore[type-arg]
        self._kind = kind
        self.name = f"{kind.name}|{TAKEN_AWAY}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See click."""
        return TAKEN_AWAY if value == TAKEN_AWAY else self._kind.convert(value, param, ctx)


COUNT = click.IntRange(0, 2**53)
DAYS = NumberRange(0, _MOST_DAYS, min_open=True)
per_option = click.option(
    "--per", type=click.Choice(WINDOWS), help="Window of the budget. [default for a new one: 1M]"
)

calendar_option = click.option(
    "--calendar/--rolling",
    default=None,
    help="Whether the budget's window is that of the UTC calendar, or rolling. [default for a "
    "new one: rolling]",
)


def model_warnings(models: Iterable[str], settings: GatewaySettings, path: Path) -> None:
    """Warn on standard error about the key's models that match nothing in the file."""
    known = [*settings.models, *settings.aliases]
    for model in models:
        provider, slash, _ = model.partition("/")
        if slash and any(fnmatchcase(name, provider) for name in settings.providers):
            continue
        if not any(fnmatchcase(name, model) for name in known):
            named = ", ".join(known[:_MOST_NAMED]) + (" ..." if len(known) > _MOST_NAMED else "")
            click.echo(
                f"warning: --model {model}: {path} has no such model; it has {named or 'none'}",
                err=True,
            )
