"""The request log of the file: where it is stored, and how records are made."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from headrace.errors import ConfigError
from headrace.gateway.batch_writer import Batches, Bounds, Verdict, Waits
from headrace.gateway.building.dialects import CLIENT_DIALECTS, client_side
from headrace.gateway.pii.expression import Expression, expression_of
from headrace.gateway.request_log.assembling import Assembling
from headrace.gateway.request_log.record import LogRecord
from headrace.gateway.request_log.recorder import Recorder
from headrace.gateway.request_log.redaction import Redaction
from headrace.gateway.request_log.sqlite_store import FILE, SqliteReader, SqliteRecords
from headrace.gateway.request_log.written_log import Reader, WrittenLog
from headrace.gateway.settings.request_log import (
    DEFAULT_PATH,
    RedactSettings,
    RequestLogSettings,
)
from headrace.gateway.settings.secret import Sources, is_plain, read_secret
from headrace.protocol.neutral.dialect import ClientSide, ReplySide

if TYPE_CHECKING:
    from headrace.gateway.request_log.postgresql_store import Database

# A database that comes back is written to after this long at the latest.
_POSTGRESQL_WAITS = Waits(retry_s=0.5, most_s=5.0)


def request_log_of(
    settings: RequestLogSettings, sources: Sources, wall_s: Callable[[], float]
) -> WrittenLog | None:
    """The request log; None if the file has it off.

    A file is opened or created; a database is connected to when there is something to write. Raises
    ConfigError and RequestLogError.
    """
    if not settings.enabled:
        return None
    waits = Waits()
    store: Batches[LogRecord]
    judge: Callable[[Exception], Verdict | None]
    if settings.store == "postgresql":
        postgresql = _postgresql()
        database = _database(settings, sources)
        store, name, judge = (
            postgresql.PostgresqlRecords(database),
            database.name,
            postgresql.judged,
        )
        waits = _POSTGRESQL_WAITS
    else:
        from headrace.gateway.sqlite_verdict import judged

        path = _path(settings, sources)
        store, name, judge = SqliteRecords(path), str(path), judged
    return WrittenLog(
        store,
        reader_of(settings, sources),
        recorder_of(settings),
        name=name,
        # What cannot be made a record is lost alone: a fault of ours must not end the thread.
        judge=lambda error: judge(error) or "bad_line",
        retention_days=settings.retention_days,
        wall_s=wall_s,
        bounds=Bounds(settings.max_waiting, settings.max_waiting_bytes),
        waits=waits,
    )


def reader_of(settings: RequestLogSettings, sources: Sources) -> Reader:
    """A reader of the stored records, also without a writer. Raises ConfigError."""
    if settings.store == "postgresql":
        reader: Reader = _postgresql().PostgresqlReader(_database(settings, sources))
        return reader
    return SqliteReader(_path(settings, sources))


def check_request_log(settings: RequestLogSettings, sources: Sources) -> None:
    """Raises ConfigError and RequestLogError where a gateway would not start with it. Makes no
    file and connects to nothing."""
    if not settings.enabled:
        return
    recorder_of(settings)
    if settings.store == "postgresql":
        _database(settings, sources)
    else:
        FILE.check_file(_path(settings, sources))


def has_plain_url(settings: RequestLogSettings) -> bool:
    """Whether a password may stand in the file itself."""
    return settings.url is not None and is_plain(settings.url) and "@" in settings.url


def _path(settings: RequestLogSettings, sources: Sources) -> Path:
    return sources.folder / (settings.path or DEFAULT_PATH)


def _database(settings: RequestLogSettings, sources: Sources) -> Database:
    url = read_secret(settings.url or "", sources, "request_log.url")
    database: Database = _postgresql().Database(url)
    return database


def _postgresql() -> ModuleType:
    try:
        from headrace.gateway.request_log import postgresql_store
    except ImportError as error:
        raise ConfigError(
            "request_log.store: PostgreSQL needs psycopg; pip install 'headrace[postgres]' "
            f"({error})"
        ) from None
    return postgresql_store


def recorder_of(settings: RequestLogSettings) -> Recorder:
    """Raises ConfigError."""
    return Recorder(
        redaction_of(settings.redact),
        settings.max_body_bytes,
        Assembling(sides_of),
        lambda: os.urandom(8).hex(),
    )


def redaction_of(settings: RedactSettings) -> Redaction:
    """Raises ConfigError for a pattern that cannot be read."""
    patterns = [(name, _expression(name, one)) for name, one in settings.patterns.items()]
    return Redaction(settings.pii, patterns, settings.fields, media=settings.media)


def _expression(name: str, pattern: str) -> Expression:
    try:
        return expression_of(pattern)
    except ConfigError as error:
        raise ConfigError(f"request_log.redact.patterns.{name}: {error}") from None


def sides_of(dialect: str) -> tuple[ClientSide, ReplySide] | None:
    """How a client dialect is written and read; None for one without a reader."""
    if dialect not in CLIENT_DIALECTS:
        return None
    client = client_side(dialect)
    replies: ReplySide
    if dialect == "openai-chat":
        from headrace.protocol.dialects.openai_chat import PRESETS, OpenAIChatProvider

        replies = OpenAIChatProvider(PRESETS["openai"])
    elif dialect == "openai-completions":
        from headrace.protocol.dialects.openai_completions import REPLIES

        replies = REPLIES
    elif dialect == "openai-responses":
        from headrace.protocol.dialects.openai_responses import PROVIDER as RESPONSES

        replies = RESPONSES
    elif dialect == "anthropic":
        from headrace.protocol.dialects.anthropic import PROVIDER as ANTHROPIC

        replies = ANTHROPIC
    elif dialect == "ollama":
        from headrace.protocol.dialects.ollama import PROVIDER as OLLAMA

        replies = OLLAMA
    elif dialect == "ollama-generate":
        from headrace.protocol.dialects.ollama.generate import GenerateReplies

        replies = GenerateReplies()
    else:
        return None
    return client, replies
