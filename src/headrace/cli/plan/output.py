"""What every command of `headrace plan` does with its answer: keep it, and write its page."""

from __future__ import annotations

import datetime as dt
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.cli.visible import visible

if TYPE_CHECKING:
    from rich.table import Table

    from headrace.plan.saved_plan import PlanMetadata

F = TypeVar("F", bound=Callable[..., Any])

_html = click.option(
    "--html",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write an HTML page with tables, plots and where each figure comes from, as one "
    "file.",
)
_plot = click.option(
    "--plot/--no-plot",
    default=None,
    help="Also draw plots as text. [default: on in a terminal]",
)
_keep = click.option(
    "--keep/--no-keep",
    default=True,
    help="Keep the plan for `headrace plan explain`, replacing the last one. [default: on]",
)


def output_options(function: F) -> F:
    """Decorator: --plot, --html and --no-keep."""
    return _plot(page_options(function))


def page_options(function: F) -> F:
    """Decorator of plans that draw nothing in a terminal: --html and --no-keep."""
    return _html(_keep(function))


def plan_about(plan: str, folders: tuple[str, ...]) -> PlanMetadata:
    """How the command that runs was asked for, now."""
    from headrace import __version__
    from headrace.plan.saved_plan import PlanMetadata

    return PlanMetadata(
        plan=plan,
        command=typed_command(click.get_current_context()),
        version=__version__,
        made_at=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        catalogs=tuple(str(Path(one).expanduser().resolve()) for one in folders),
    )


def keep_for_explain(found: Mapping[str, Any], about: PlanMetadata) -> None:
    """Keep what --json prints; where that cannot be it is said, and is no reason to end."""
    from headrace.plan.saved_plan import save_plan, saved_plan_path

    try:
        save_plan(found, about, os.environ)
    except OSError as error:
        click.echo(
            f"the plan is not kept for `headrace plan explain`: {saved_plan_path(os.environ)}: "
            f"{error.strerror}; set XDG_STATE_HOME to a folder you may write to, or use --no-keep",
            err=True,
        )


def write_page(path: Path, page: str) -> None:
    """The page, whole or not at all; raises HeadraceError where it cannot be written."""
    from headrace.atomic_file import atomic_file
    from headrace.errors import HeadraceError

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file:
            file.write(page.encode(errors="replace"))
    except OSError as error:
        raise HeadraceError(f"{path}: {error.strerror}") from error
    click.echo(f"saved in {path}", err=True)


def add_id_column(table: Table, ids: Sequence[str], width: int) -> None:
    """A column of ids of figures, whole to be copied: other columns wrap before it does.

    width: of the console; ids longer than a third of it go on in a second line.
    """
    longest = max(map(len, ids), default=0)
    table.add_column("id", overflow="fold", no_wrap=longest <= width // 3)


def asked_line(plan: str, example: str = "") -> str:
    """The line below tables that says how to go on. example: a figure that is there."""
    if not click.get_current_context().params.get("keep", True):
        return "without --no-keep, `headrace plan explain` says where a figure comes from"
    example = example or _EXAMPLES.get(plan, "")
    return (
        f"where a figure comes from: headrace plan explain {example or 'ID'} (without an id: all "
        "figures)"
    )


_EXAMPLES = {
    "fit": "most-users",
    "speed": "speed.tpot",
    "cost": "cost.served",
    "simulate": "simulate.ttft.p95",
}
"""Of a plan, a figure it has."""


def typed_command(ctx: click.Context) -> str:
    """The command with what was given, as it could be typed again; not what only says where to."""
    words = ["headrace", *ctx.command_path.split()[1:]]
    if words[1:2] != ["plan"]:
        words.insert(1, "plan")  # the group is the root in tests
    options: list[str] = []
    for one in ctx.command.params:
        source = ctx.get_parameter_source(one.name or "")
        value = ctx.params.get(one.name or "")
        if source is not click.core.ParameterSource.COMMANDLINE or value is None:
            continue
        if isinstance(one, click.Argument):
            words.append(str(value))
        elif one.name not in _OF_OUTPUT:
            options += _option(one, value)
    return visible(shlex.join([*words, *options]))


_OF_OUTPUT = ("html", "keep", "as_json", "plot")


def _option(one: click.Parameter, value: Any) -> list[str]:
    assert isinstance(one, click.Option)
    if one.is_flag:
        return [one.opts[0] if value else (one.secondary_opts or one.opts)[0]]
    if one.multiple:
        return [word for each in value for word in (one.opts[0], str(each))]
    if isinstance(value, list):
        value = ",".join(map(str, value))
    if isinstance(value, dt.datetime):
        value = value.date()
    return [one.opts[0], f"{value:g}" if isinstance(value, float) else str(value)]
