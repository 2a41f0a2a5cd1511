"""Recorded requests: lines of a file, or records of the request log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headrace.errors import ConfigError
from headrace.gateway.prompt_cache.prompt import Prompt, prompt_of
from headrace.gateway.request_log.filters import RecordFilter
from headrace.gateway.request_log.store import RequestLog

# The largest body that a gateway accepts by default.
_MOST_LINE_BYTES = 32 * 2**20
_PAGE = 100


def prompts_of_file(path: Path, most: int) -> Iterator[tuple[Prompt, str]]:
    """The first `most` prompts of a file with a request's body on each line, with "" for the key.

    Raises ConfigError naming the line that is not JSON; bodies that are not chats are skipped.
    """
    try:
        with path.open("rb") as lines:
            for number in range(1, most + 1):
                line = lines.readline(_MOST_LINE_BYTES + 1)
                if not line:
                    return
                if len(line) > _MOST_LINE_BYTES:
                    raise ConfigError(
                        f"{path}:{number}: the line has more than {_MOST_LINE_BYTES:,} bytes"
                    )
                if line.strip() and (prompt := prompt_of(_decoded(line, path, number))):
                    yield prompt, ""
    except OSError as error:
        raise ConfigError(f"--file: {path}: {error.strerror}") from error


async def prompts_of_log(log: RequestLog, most: int) -> list[tuple[Prompt, str]]:
    """The prompts of the newest records in their order of arrival, each with the id of its key;
    records without a body, or with one that was cut, are skipped. Raises RequestLogError."""
    prompts: list[tuple[Prompt, str]] = []
    wanted = RecordFilter(limit=min(_PAGE, most), bodies=True)
    seen = 0
    while seen < most:
        page = await log.newest(wanted)
        seen += len(page.records)
        for record in page.records:
            if record.request is None or record.request.cut:
                continue
            try:
                body = json.loads(record.request.text)
            except (ValueError, RecursionError):
                continue
            if (prompt := prompt_of(body)) is not None:
                prompts.append((prompt, record.key))
        if page.next is None or not page.records:
            break
        wanted = wanted._replace(after=page.next, limit=min(_PAGE, most - seen))
    return prompts[::-1]


def _decoded(line: bytes, path: Path, number: int) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path}:{number}: not JSON ({error}); each line must be a request's body"
        ) from None
