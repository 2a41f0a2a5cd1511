"""Options for what else a key has, for `keys create` and `keys edit`: tags, guardrails, a priority,
a data policy, and what holds for it while stores are down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.cli.gateway.keys.options import TAKEN_AWAY, OrNone
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.gateway.settings.gateway import GatewaySettings

F = TypeVar("F", bound=Callable[..., Any])

_LISTS = ("tags", "guardrails", "regions")
_WORDS = ("high", "normal", "low")
_LEAST_PRIORITY, _MOST_PRIORITY = -1000, 1000


class Priority(click.ParamType):  # type: ignore[type-arg]  # no generic before click 8.2
    """A word or a number, lower first."""

    name = "high|normal|low|number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | int:
        """See click."""
        if value in _WORDS:
            return str(value)
        try:
            number = int(value)
        except ValueError:
            number = _MOST_PRIORITY + 1
        if not _LEAST_PRIORITY <= number <= _MOST_PRIORITY:
            self.fail(
                f"{value!r} is neither one of {', '.join(_WORDS)} nor a whole number from "
                f"{_LEAST_PRIORITY} to {_MOST_PRIORITY}", param, ctx,
            )  # fmt: skip
        return number


def trait_options(*, edits: bool) -> Callable[[F], F]:
    """Options for a key's traits. edits: whether each can be removed again with the word `none`."""
    more = ", instead of all the previous ones; none: none" if edits else ""
    away = "; none: that of the level above" if edits else ""

    def kind(of: click.ParamType) -> click.ParamType:  # type: ignore[type-arg]
        return OrNone(of) if edits else of

    options = (
        click.option("--tag", "tags", multiple=True,
                     help=f"A tag of the key{more}. [may be repeated]"),
        click.option("--guardrail", "guardrails", multiple=True,
                     help=f"A guardrail of the file that applies to it{more}. [may be repeated]"),
        click.option("--priority", type=kind(Priority()),
                     help=f"Priority of its requests in queues; a lower number goes first{away}."),
        click.option("--data-collection", type=click.Choice(("allow", "deny")),
                     help="deny: use only providers known not to collect data."),
        click.option("--zero-retention/--no-zero-retention", default=None,
                     help="Whether only providers that retain nothing are used."),
        click.option("--region", "regions", multiple=True,
                     help=f"A region in which its requests may be served{more}. [may be repeated]"),
        click.option("--when-stores-are-down", type=kind(click.Choice(("open", "closed"))),
                     help=f"Whether requests are served while Redis cannot be reached{away}."),
    )  # fmt: skip

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def traits_given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given, as `accounts.edit.with_traits` takes them. Raises UsageError."""
    from headrace.gateway.accounts.edit import priority_of

    given: dict[str, Any] = {}
    for name in _LISTS:
        if values := options[name]:
            if TAKEN_AWAY in values and len(values) > 1:
                option = name.removesuffix("s")
                raise click.UsageError(
                    f"--{option} none cannot be combined with another --{option}"
                )
            nothing = None if name == "regions" else ()
            given[name] = nothing if TAKEN_AWAY in values else tuple(values)
    for name in ("data_collection", "zero_retention"):
        if options[name] is not None:
            given[name] = options[name]
    for name in ("priority", "when_stores_are_down"):
        if options[name] is not None:
            given[name] = None if options[name] == TAKEN_AWAY else options[name]
    if "priority" in given:
        given["priority"] = priority_of(given["priority"])
    return given


def check_traits(traits: Mapping[str, Any], settings: GatewaySettings, path: Path) -> None:
    """Raises ConfigError for a guardrail that the file at `path` does not have."""
    from headrace.gateway.accounts.edit import check_guardrails

    try:
        check_guardrails(traits.get("guardrails", ()), settings.guardrails)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
