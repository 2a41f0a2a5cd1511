"""`headrace chat`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from headrace.cli.notes import note
from headrace.cli.options import CONFIGS, PARSERS, collect, settings
from headrace.cli.sampling import sampling_options, sampling_params
from headrace.cli.sections import SectionedCommand, SectionOption
from headrace.cli.structured import schema_form
from headrace.config import EngineConfig, ServerConfig, flags_of
from headrace.errors import ConfigError, TemplateError

if TYPE_CHECKING:
    from headrace.cli.chat.model import ChatModel

_HINT = "/help lists the commands, Ctrl-C stops an answer, Ctrl-D ends the chat."


class _ChatCommand(SectionedCommand):
    """`headrace chat`, whose help also has the commands that are typed within it."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands of a chat."""
        # Read only here: a chat that begins reads its model first.
        from headrace.cli.chat.commands import rows

        super().format_epilog(ctx, formatter)
        with formatter.section("Commands in the chat"):
            formatter.write_dl(rows())


def _effort(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Option callback: the effort that a word means, or a usage error with the words there are."""
    if value is None:
        return None
    # Read only here: a command line without it does not wait for the words.
    from headrace.cli.chat.settings import effort_of

    try:
        return effort_of(value, param.opts[0])
    except ConfigError as error:
        raise click.UsageError(str(error), ctx) from None


@click.command(cls=_ChatCommand)
@click.argument("model", required=False)
@click.option("--system", help="System message that the conversation starts with.")
@sampling_options
@click.option(
    "--schema",
    cls=SectionOption,
    section="Answers",
    metavar="FILE",
    help="Hold answers to the JSON schema in a file, or to the one that is written here, as "
    "/schema does.",
)
@click.option(
    "--tools",
    cls=SectionOption,
    section="Answers",
    metavar="FILE",
    help="Offer the model the tools in a JSON file, or those written here, as /tools does.",
)
@click.option(
    "--reasoning-effort",
    "effort",
    cls=SectionOption,
    section="Answers",
    metavar="LEVEL",
    callback=_effort,
    help="How much the model is to reason, in the words of /think. [default: the model's]",
)
@settings(EngineConfig, skip=frozenset({"model"}), of_server=PARSERS)
@click.option(
    "--url",
    help="Talk to the model of a running server (`headrace serve`, `headrace gateway` or another "
    "of OpenAI's API) and load none; MODEL is then one of its names. Its key is read from "
    "HEADRACE_API_KEY.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per answer.")
@click.pass_context
def chat(
    ctx: click.Context,
    /,
    model: str | None,
    system: str | None,
    stop: tuple[str, ...],
    url: str | None,
    as_json: bool,
    schema: str | None,
    tools: str | None,
    effort: str | None,
    **values: Any,
) -> None:
    """Talk to MODEL (a path, or a name as for `serve`); each line read is a message.

    A line that ends in a backslash continues on the next, and three double quotes open and close a
    message of several lines. A line whose first word is / and letters is a command; /help lists
    them, as this help does below. What is typed in a terminal is kept in
    $XDG_STATE_HOME/headrace/chat_history.

    Without MODEL, the small model that ships in the package is used: it answers short questions
    about Python, best with --temperature 0.

    \b
    headrace chat Qwen/Qwen3-0.6B
    headrace chat ./model.gguf --system "Answer in one sentence." --temperature 0.2
    headrace chat --temperature 0 --schema person.json --thinking-token-budget 0
    headrace chat --url http://127.0.0.1:8000
    """
    from headrace.cli.chat.tools import read_tools

    form = None if schema is None else schema_form(schema, "--schema")
    offered = [] if tools is None else read_tools(tools, "--tools")
    chat_model, name = _loaded(ctx, model) if url is None else _served(ctx, url, model)
    from headrace.cli.chat.commands import run_command
    from headrace.cli.chat.conversation import Conversation
    from headrace.cli.chat.input import entries, line_editing, read_entry, read_line
    from headrace.cli.chat.session import Session
    from headrace.engine.sampling.defaults import described

    if sys.stdin.isatty() and not as_json:
        note(_HINT)
        if chat_model.sampling_defaults:
            note(f"Sampling defaults of the model: {described(chat_model.sampling_defaults)}.")
    session = Session(
        chat_model,
        Conversation(system),
        sampling_params(values, form),
        read_result=lambda prompt: read_entry(read_line, prompt),
        stop=stop,
        name=name,
        as_json=as_json,
    )
    session.tools, session.effort = offered, effort
    with line_editing(os.environ):
        for entry in entries(read_line, prompt="" if as_json else "> "):
            try:
                if not run_command(session, entry):
                    session.ask(entry.text)
            except EOFError:  # /quit
                break
            except KeyboardInterrupt:
                note("\n(stopped)")


def _loaded(ctx: click.Context, model: str | None) -> tuple[ChatModel, str]:
    """A model in this process, and its name for people."""
    config = collect(ctx, EngineConfig, among=CONFIGS, overrides={"model": model})
    of_server = collect(ctx, ServerConfig, among=CONFIGS, only=PARSERS)
    parsers = {name: getattr(of_server, name) for name in PARSERS}
    from msgspec.structs import asdict

    from headrace.cli.obtain import obtain

    config, _ = obtain(config)
    from headrace.cli.chat.model import LocalModel
    from headrace.llm import LLM

    llm = LLM(**asdict(config), **parsers)
    if not llm.has_chat_template:
        raise TemplateError(
            f"{model} has no chat template; continue texts with `headrace generate`, "
            "or give one to `headrace serve --chat-template FILE`"
        )
    return LocalModel(llm), model or "the model of the package"


def _served(ctx: click.Context, url: str, model: str | None) -> tuple[ChatModel, str]:
    """A server's model, and its name there."""
    of_server = [flag for flag in flags_of(ServerConfig) if flag.name in PARSERS]
    for flag in (*flags_of(EngineConfig), *of_server):
        given = ctx.get_parameter_source(flag.name) is ParameterSource.COMMANDLINE
        if given and flag.name != "model":
            raise click.UsageError(
                f"{flag.flag} is for a model that is loaded here; omit it, or omit --url", ctx
            )
    from headrace.cli.chat.remote import RemoteModel
    from headrace.cli.server_url import first_key

    remote = RemoteModel(url, model, key=first_key(os.environ))
    return remote, f"{remote.name} at {url}"
