"""Prompts that stand in a JSONL file, one request a line.

A line has `prompt` (a text or token ids), `messages`, or `input` (texts to embed), and may have
`max_tokens` (or max_completion_tokens, output_tokens), `min_tokens`, `ignore_eos`, `extra_body` and
`timestamp`, in milliseconds, which is read where the file is a trace. A line with `body` is one of
OpenAI's batches: what its body has beyond those fields is sent along, but for the model and the
stream, which the run decides. Fields of other lines that mean nothing here are not sent, and the
notes name them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from headrace.bench.client.prompt import Prompt
from headrace.bench.prompts.lengths import MAX_TOKENS
from headrace.bench.prompts.made import MadeWorkload
from headrace.bench.prompts.options import NO_OPTIONS, RequestOptions
from headrace.bench.prompts.read_json import MAX_TIMESTAMP_MS, Line, read_lines
from headrace.bench.workload import WorkItem
from headrace.errors import ConfigError

_NS_PER_MS = 1_000_000
# In the order in which they are looked for.
_LIMITS = ("max_tokens", "max_completion_tokens", "output_tokens")
_PROMPTS = ("prompt", "messages", "input")
_KNOWN = frozenset(
    {*_LIMITS, *_PROMPTS, "min_tokens", "ignore_eos", "extra_body", "timestamp", "body"}
)
# Of a batch's line and body: the run decides them, or they only number the lines.
_DECIDED = frozenset({"model", "stream", "stream_options", "custom_id", "method", "url"})


def read_prompts(
    path: Path,
    *,
    limit: int | None = None,
    output_tokens: int | None = None,
    options: RequestOptions = NO_OPTIONS,
    timed: bool = False,
) -> MadeWorkload:
    """The first `limit` requests of a file, in its order.

    output_tokens: the longest answer where a line does not say. timed: the file is a trace, every
    line of which has a `timestamp`; otherwise those are not read, and the notes say so. Raises
    ConfigError with file and line for whatever cannot be sent.
    """
    items: list[WorkItem] = []
    unused: dict[str, None] = {}
    ignored = 0
    for line in read_lines(path):
        if limit is not None and len(items) >= limit:
            break
        at_ns = line.whole("timestamp", 0, MAX_TIMESTAMP_MS) * _NS_PER_MS if timed else None
        ignored += not timed and "timestamp" in line.fields
        items.append(_item(line, output_tokens, options, at_ns))
        unused |= dict.fromkeys(sorted(line.fields.keys() - _KNOWN - _DECIDED))
    if not items:
        raise ConfigError(f"{path}: has no prompts; write one JSON object in each line")
    notes = [f"{path.name}: these fields are not sent: {', '.join(unused)}"] if unused else []
    if ignored:
        notes.append(
            f"{path.name}: the timestamp of {ignored} lines is not used; give the file as "
            "--trace to send them at those times"
        )
    return MadeWorkload(path.name, items, notes=notes)


def has_prompts(path: Path) -> bool:
    """Whether a trace is one of prompts, by the first line of its JSONL. Raises ConfigError for a
    .jsonl file that cannot be read."""
    if path.suffix != ".jsonl":
        return False
    first = next(read_lines(path), None)
    return first is not None and not {*_PROMPTS, "body"}.isdisjoint(first.fields)


def _item(
    line: Line, output_tokens: int | None, options: RequestOptions, at_ns: int | None
) -> WorkItem:
    told = line
    extra: dict[str, Any] = {}
    if "body" in line.fields:
        if not isinstance(line.fields["body"], dict):
            line.refuse("body", line.fields["body"], "must be an object, the body of a request")
        told = Line(line.where, line.fields["body"])
        extra = {
            name: value
            for name, value in told.fields.items()
            if name not in _KNOWN and name not in _DECIDED
        }
    prompt, tokens = _prompt(told, output_tokens, options, extra)
    forced = prompt.ignore_eos or prompt.min_tokens is not None
    return WorkItem(
        prompt=prompt,
        at_ns=at_ns,
        prompt_tokens_asked=len(prompt.token_ids) if prompt.token_ids is not None else None,
        # A limit alone is no aim: answers may well be shorter.
        output_tokens_asked=tokens if forced else None,
    )


def _prompt(
    line: Line, output_tokens: int | None, options: RequestOptions, extra: dict[str, Any]
) -> tuple[Prompt, int | None]:
    limits = [line.optional_whole(name, 1, MAX_TOKENS) for name in _LIMITS]
    tokens = next((limit for limit in limits if limit is not None), output_tokens)
    named = line.fields.get("extra_body", {})
    if not isinstance(named, dict):
        line.refuse("extra_body", named, "must be an object of fields of the body")
    prompt = options.prompt(tokens, extra_body={**extra, **named}, **_content(line))
    if prompt.inputs is not None:
        return prompt, None
    least = line.optional_whole("min_tokens", 0, MAX_TOKENS)
    ignore = line.fields.get("ignore_eos", prompt.ignore_eos)
    if not isinstance(ignore, bool):
        line.refuse("ignore_eos", ignore, "must be true or false")
    own = {"min_tokens": prompt.min_tokens if least is None else least, "ignore_eos": ignore}
    return msgspec.structs.replace(prompt, **own), tokens


def _content(line: Line) -> dict[str, Any]:
    """The one prompt of a line, by the name that `Prompt` has for it."""
    given = [name for name in _PROMPTS if line.fields.get(name) is not None]
    if len(given) != 1:
        raise ConfigError(
            f"{line.where}: has {' and '.join(given) or 'no prompt'}; give one of prompt, messages "
            "and input"
        )
    name = given[0]
    value = line.fields[name]
    if name == "messages":
        if not isinstance(value, list) or not value:
            line.refuse("messages", value, "must be a list of at least one message")
        if not all(isinstance(one, dict) and "role" in one for one in value):
            line.refuse("messages", value, "each must be an object with a role")
        return {"messages": tuple(value)}
    if name == "input":
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not texts or not _all_are(texts, str):
            line.refuse("input", value, "must be a text or a list of texts")
        return {"inputs": tuple(texts)}
    if isinstance(value, str):
        return {"text": value}
    if not isinstance(value, list) or not value or not _all_are(value, int) or min(value) < 0:
        line.refuse("prompt", value, "must be a text or a list of token ids")
    return {"token_ids": tuple(value)}


def _all_are(values: list[Any], kind: type) -> bool:
    return all(isinstance(one, kind) and not isinstance(one, bool) for one in values)
