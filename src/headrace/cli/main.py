"""`headrace`: the commands by name. A command's module is imported when it is run, not before."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import Any, NamedTuple

import click

from headrace.cli.interrupt import INTERRUPTED, leave_quietly, raise_again
from headrace.cli.streams import fill_standard_streams


class CommandEntry(NamedTuple):
    """The place of a command (`module:attribute`) and its line in `headrace --help`."""

    target: str
    help: str


COMMANDS = {
    "serve": CommandEntry(
        "headrace.cli.serve:serve",
        "Serve a model over the APIs of OpenAI, Anthropic and Ollama.",
    ),
    "chat": CommandEntry("headrace.cli.chat.command:chat", "Talk to a model in the terminal."),
    "generate": CommandEntry(
        "headrace.cli.generate:generate", "Continue prompts and print the results."
    ),
    "show": CommandEntry("headrace.cli.show:show", "Show what a model file holds."),
    "bench": CommandEntry(
        "headrace.cli.bench.group:bench",
        "Measure endpoints under load, this machine or the engine.",
    ),
    "eval": CommandEntry(
        "headrace.cli.eval.group:evaluate",
        "Measure how good a checkpoint is, alone or beside another.",
    ),
    "quantize": CommandEntry("headrace.cli.quantize:quantize", "Make a smaller file of a model."),
    "convert": CommandEntry(
        "headrace.cli.convert:convert",
        "Write a model as a GGUF file or as a Hugging Face folder.",
    ),
    "prune": CommandEntry(
        "headrace.cli.prune:prune", "Drop the experts or layers that a text uses least."
    ),
    "imatrix": CommandEntry(
        "headrace.cli.imatrix:imatrix", "Measure what matters in a model's matrices, for quantize."
    ),
    "catalog": CommandEntry(
        "headrace.cli.catalog.group:catalog", "Look up facts about models, hardware and prices."
    ),
    "plan": CommandEntry(
        "headrace.cli.plan.group:plan", "Predict what fits, how fast it runs and what it costs."
    ),
    "gateway": CommandEntry(
        "headrace.cli.gateway.group:gateway",
        "Serve many providers and engines at one address.",
    ),
    "pull": CommandEntry("headrace.cli.pull:pull", "Fetch a model from the hub."),
    "list": CommandEntry("headrace.cli.list_models:list_models", "List the models on this disk."),
    "ps": CommandEntry("headrace.cli.ps:ps", "List the models that running servers serve."),
    "rm": CommandEntry("headrace.cli.rm:rm", "Remove a fetched model."),
}


_NO_MORE_OUTPUT = (errno.ENOSPC, errno.EPIPE, errno.EBADF, errno.EIO)


class LazyCommands(click.Group):
    """A group whose help needs none of its commands' modules."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command; None for an unknown name."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        raise_again()
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is typed; a usage error names the nearest one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            meant = (
                f"Did you mean {near[0]!r}?"
                if near
                else f"The commands are: {', '.join(COMMANDS)}."
            )
            ctx.fail(f"No such command {args[0]!r}. {meant}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; Ctrl-C that it does not handle itself ends it without a word."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


def _print_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from headrace import __version__

        click.echo(f"headrace {__version__}")
        ctx.exit()


@click.group(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Print the version and exit.",
)
def cli() -> None:
    """Serve, route to, measure and plan language models, over the APIs that clients already use.

    `headrace serve` without a model serves a small one that ships in the package.
    """


def _is_of_interrupt(error: BaseException) -> bool:
    """Whether it came while Ctrl-C was handled: a second one may interrupt the closing of an event
    loop, which then says that it cannot be closed."""
    context: BaseException | None = error
    while context is not None:
        if isinstance(context, KeyboardInterrupt):
            return True
        context = context.__context__
    return False


def main(begun: object = None) -> None:
    """The console script: errors and warnings for people are one line, without a traceback.

    begun: what was begun for the command before click was there, as `ctx.find_object` gives it.
    """
    leave_quietly()
    import warnings

    from headrace.errors import HeadraceError

    fill_standard_streams()
    warnings.formatwarning = lambda message, *_args, **_kwargs: f"headrace: {message}\n"
    try:
        cli(prog_name="headrace", obj=begun)
    except HeadraceError as error:
        from headrace.cli.visible import visible

        click.echo(visible(f"headrace: {error}"), err=True)
        sys.exit(1)
    except RuntimeError as error:
        if not _is_of_interrupt(error):
            raise
        sys.exit(INTERRUPTED)
    except OSError as error:
        if error.errno not in _NO_MORE_OUTPUT:
            raise
        # What is buffered cannot be written either, and Python would try again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        click.echo(f"headrace: cannot write the output: {error.strerror}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
