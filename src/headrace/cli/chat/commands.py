"""The commands of a chat: a line whose first word is / and letters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from headrace.cli.chat import settings as chat_settings
from headrace.cli.chat.conversation import SavedChat, load, save
from headrace.cli.chat.input import CANCEL, Entry, command_of
from headrace.cli.chat.session import Session
from headrace.cli.chat.tools import checked, names, read_tools
from headrace.cli.notes import note
from headrace.cli.structured import form_of_schema, schema_form
from headrace.config.load import nearest
from headrace.errors import ConfigError, HeadraceError
from headrace.protocol.openai.chat import REASONING_EFFORTS


class Command(NamedTuple):
    """A command of a chat."""

    run: Callable[[Session, str], None]
    argument: str
    """Its name in the help; "" takes none, one in brackets may be left out."""
    help: str


def run_command(session: Session, entry: Entry) -> bool:
    """Run an entry if it is a command; whether it was one. Errors are shown, and change nothing.

    Raises EOFError, as the end of input does, where the chat is to end.
    """
    line = command_of(entry)
    if line is None:
        return False
    name, argument = line
    command = COMMANDS.get(name)
    try:
        if command is None:
            typed = f"/{name}"
            meant = nearest(typed, [f"/{known}" for known in COMMANDS])
            raise ConfigError(f"{typed} is not a command; /help lists them{meant}")
        if command.argument and not command.argument.startswith("[") and not argument:
            raise ConfigError(f"/{name} needs {command.argument}; /help says more")
        if argument and not command.argument:
            raise ConfigError(f"/{name} takes nothing, not {argument!r}")
        command.run(session, argument)
    except HeadraceError as error:
        note(f"headrace: {error}", "red")
    return True


def rows() -> list[tuple[str, str]]:
    """Every command as it is typed, and what it does."""
    return [
        (f"/{name} {command.argument}".rstrip(), command.help) for name, command in COMMANDS.items()
    ]


def _help(_session: Session, _argument: str) -> None:
    width = max(len(left) for left, _ in rows())
    note("\n".join(f"{left.ljust(width)}  {right}" for left, right in rows()))
    note(
        'A line that ends in \\ continues on the next; """ opens and closes a text of many '
        "lines. Ctrl-C stops an answer and keeps what there is."
    )


def _cancel(_session: Session, _argument: str) -> None:
    raise ConfigError(f"/{CANCEL}: there is no call whose result is being typed")


def _quit(_session: Session, _argument: str) -> None:
    raise EOFError


def _clear(session: Session, _argument: str) -> None:
    session.conversation.clear()


def _system(session: Session, argument: str) -> None:
    if argument:
        session.conversation.set_system("" if argument == "none" else argument)
    else:
        note(session.conversation.system or "there is no system message")


def _undo(session: Session, _argument: str) -> None:
    question = session.conversation.undo()
    if question is None:
        raise ConfigError("/undo: there is no exchange to undo")
    note(f"taken back: {_one_line(question)}")


def _retry(session: Session, _argument: str) -> None:
    kept = session.conversation.messages
    question = session.conversation.undo()
    if question is None:
        raise ConfigError("/retry: there is no question yet")
    if not session.ask(question):
        session.conversation.messages = kept


def _save(session: Session, argument: str) -> None:
    chat = SavedChat(
        messages=session.conversation.messages,
        model=session.name,
        settings=chat_settings.chosen(session.params),
        stop=list(session.stop),
        schema=chat_settings.schema(session.params),
        tools=session.tools,
        effort=session.effort,
    )
    path = _path(argument)
    save(path, chat)
    note(f"{_counted(session)} saved to {path}")


def _load(session: Session, argument: str) -> None:
    path = _path(argument)
    chat = load(path)
    place = f"/load {path}"
    params = chat_settings.of_file(chat.settings, session.params)
    form = None if chat.schema is None else form_of_schema(chat.schema, f"{place}: schema")
    tools = checked(chat.tools, f"{place}: tools") if chat.tools else []
    effort = None if chat.effort is None else chat_settings.effort_of(chat.effort)
    session.conversation.messages = chat.messages
    session.params = msgspec.structs.replace(params, structured_outputs=form)
    session.stop, session.tools, session.effort = tuple(chat.stop), tools, effort
    note(f"{_counted(session)} loaded from {path}")


def _set(session: Session, argument: str) -> None:
    name, _, value = argument.partition(" ")
    if not name:
        note(_settings(session))
    elif not value.strip():
        raise ConfigError("/set needs a name and a value: /set temperature 0.2")
    else:
        session.params = chat_settings.changed(session.params, name, value.strip())


def _schema(session: Session, argument: str) -> None:
    if not argument:
        schema = chat_settings.schema(session.params)
        note("there is no schema" if schema is None else msgspec.json.encode(schema).decode())
        return
    form = None if argument == "off" else schema_form(argument, "/schema")
    session.params = msgspec.structs.replace(session.params, structured_outputs=form)


def _tools(session: Session, argument: str) -> None:
    if argument:
        session.tools = [] if argument == "off" else read_tools(argument, "/tools")
    elif session.tools:
        note(msgspec.json.format(msgspec.json.encode(session.tools), indent=2).decode())
    else:
        note("there are no tools")


def _think(session: Session, argument: str) -> None:
    if argument:
        session.effort = chat_settings.effort_of(argument)
    else:
        note(f"the reasoning effort is {chat_settings.shown_effort(session.effort)}")


def _show(session: Session, _argument: str) -> None:
    lines = [
        f"model     {session.name}",
        f"system    {_one_line(session.conversation.system) or 'none'}",
        f"messages  {len(session.conversation.messages)}",
        f"context   {_known(session.used_tokens())} of {_known(session.context_tokens)} tokens",
        f"effort    {chat_settings.shown_effort(session.effort)}",
        f"schema    {'none' if chat_settings.schema(session.params) is None else 'set'}",
        f"tools     {names(session.tools)}",
        f"stop      {', '.join(map(repr, session.stop)) or 'none'}",
        _settings(session),
    ]
    note("\n".join(lines))


def _tokens(session: Session, _argument: str) -> None:
    used, context = session.used_tokens(), session.context_tokens
    if used is None or context is None:
        note(f"{_known(used)} of {_known(context)} tokens of context")
        return
    note(f"{used:,} of {context:,} tokens of context; {max(0, context - used):,} are left")


def _known(count: int | None) -> str:
    return "an unknown number" if count is None else f"{count:,}"


def _settings(session: Session) -> str:
    texts = chat_settings.shown(session.params, session.model.sampling_defaults)
    width = max(map(len, texts))
    return "\n".join(f"{name.ljust(width)}  {text}" for name, text in texts.items())


def _counted(session: Session) -> str:
    count = len(session.conversation.messages)
    return "1 message" if count == 1 else f"{count} messages"


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:57]}..."


def _path(argument: str) -> Path:
    try:
        return Path(argument).expanduser()
    except RuntimeError as error:  # a ~name that nobody has
        raise ConfigError(f"{argument}: {error}") from error


COMMANDS = {
    "help": Command(_help, "", "list the commands"),
    "clear": Command(_clear, "", "forget the conversation, except the system message"),
    "system": Command(_system, "[TEXT]", "set the system message (none removes it), or show it"),
    "undo": Command(_undo, "", "remove the last question and its answer"),
    "retry": Command(_retry, "", "ask the last question again, for another answer"),
    "save": Command(_save, "FILE", "write the conversation and settings as JSON, or as .md"),
    "load": Command(_load, "FILE", "continue a conversation saved as JSON"),
    "set": Command(_set, "[NAME VALUE]", "set a sampling parameter, or show them all"),
    "schema": Command(
        _schema, "[FILE|JSON|off]", "hold answers to a JSON schema, off ends that; or show it"
    ),
    "tools": Command(
        _tools,
        "[FILE|JSON|off]",
        "offer tools, whose results you type, off ends that; or show them",
    ),
    CANCEL: Command(
        _cancel, "", "where the result of a call is typed: drop the message, as an empty line does"
    ),
    "think": Command(
        _think,
        "[on|off|LEVEL]",
        f"set the reasoning effort ({', '.join(REASONING_EFFORTS)} or default); or show it",
    ),
    "show": Command(_show, "", "show the model, the settings and the context used"),
    "tokens": Command(_tokens, "", "count the tokens of the conversation"),
    "quit": Command(_quit, "", "end the chat (or Ctrl-D)"),
    "exit": Command(_quit, "", "the same"),
}
