"""`headrace chat`."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.options import CONFIGS, collect, settings
from headrace.cli.sampling import sampling_options, sampling_params
from headrace.config import EngineConfig
from headrace.errors import RequestError, TemplateError

if TYPE_CHECKING:
    from headrace.engine.params import SamplingParams
    from headrace.llm import LLM

_HELP = "/clear forgets the conversation, /quit (or Ctrl-D) ends; Ctrl-C stops an answer."
_COMMAND = re.compile(r"/[a-z]+")


@click.command()
@click.argument("model", required=False)
@click.option("--system", help="System message the conversation starts with.")
@sampling_options
@settings(EngineConfig, skip=frozenset({"model"}))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per answer.")
@click.pass_context
def chat(
    ctx: click.Context,
    /,
    model: str | None,
    system: str | None,
    stop: tuple[str, ...],
    as_json: bool,
    **values: Any,
) -> None:
    """Talk to MODEL (a path, or a name as for `serve`); each line read is a message.

    Without MODEL, the small model that ships in the package is used: it continues code.
    """
    config = collect(ctx, EngineConfig, among=CONFIGS, overrides={"model": model})
    from msgspec.structs import asdict

    from headrace.cli.obtain import obtain

    config, _ = obtain(config)
    from headrace.llm import LLM

    llm = LLM(**asdict(config))
    if not llm.has_chat_template:
        raise TemplateError(
            f"{model} has no chat template; continue texts with `headrace generate`, "
            "or give one to `headrace serve --chat-template FILE`"
        )
    if sys.stdin.isatty() and not as_json:
        click.secho(_HELP, fg="bright_black", err=True)
    opening = [{"role": "system", "content": system}] if system else []
    messages = list(opening)
    for line in _lines(prompt="" if as_json else "> "):
        if line in ("/quit", "/exit"):
            break
        if line == "/clear":
            messages = list(opening)
            continue
        if _COMMAND.fullmatch(line):
            click.secho(_HELP, fg="bright_black", err=True)
            continue
        messages.append({"role": "user", "content": line})
        try:
            answer = _answer(llm, messages, sampling_params(values), stop, as_json)
        except (RequestError, TemplateError) as error:
            messages.pop()
            click.secho(f"headrace: {error} (the message was dropped)", fg="red", err=True)
            continue
        messages.append({"role": "assistant", "content": answer})


def _lines(prompt: str) -> Iterator[str]:
    """Lines that are not empty, from the terminal or a pipe, until the end of input."""
    terminal = sys.stdin.isatty()
    if terminal:
        import readline  # noqa: F401  gives input() history and editing
    while True:
        try:
            line = input(prompt if terminal else "").strip()
        except EOFError:
            return
        except KeyboardInterrupt:
            click.echo()
            return
        if line:
            yield line


def _answer(
    llm: LLM,
    messages: list[dict[str, str]],
    params: SamplingParams,
    stop: tuple[str, ...],
    as_json: bool,
) -> str:
    """Generate, print and return one answer; Ctrl-C keeps what there is of it."""
    ids = llm.encode_chat(messages)
    start = time.perf_counter()
    first = None
    pieces: list[str] = []
    num_tokens = cached = 0
    finish_reason: str | None = "abort"
    stream = llm.stream(ids, params, stop=stop)
    try:
        for delta in stream:
            if first is None:
                first = time.perf_counter() - start
            pieces.append(delta.text)
            num_tokens += len(delta.token_ids)
            cached = max(cached, delta.cached_tokens)
            finish_reason = delta.finish_reason
            if delta.error is not None:
                raise click.ClickException(delta.error)
            if not as_json:
                click.echo(delta.text, nl=False)
                sys.stdout.flush()
    except KeyboardInterrupt:
        pass  # the person has read enough; the request is cancelled below
    finally:
        stream.close()  # type: ignore[attr-defined]  # a generator
    seconds = time.perf_counter() - start
    text = "".join(pieces)
    if as_json:
        import msgspec

        fields = {
            "text": text, "finish_reason": finish_reason, "prompt_tokens": len(ids),
            "completion_tokens": num_tokens, "cached_tokens": cached,
            "ttft_s": first, "wall_s": seconds,
        }  # fmt: skip
        click.echo(msgspec.json.encode(fields))
    else:
        click.echo()
        speed = num_tokens / seconds if seconds else 0.0
        note = f"[{num_tokens} tokens, {speed:.1f} tokens/s, {cached} of {len(ids)} cached]"
        click.secho(note, fg="bright_black", err=True)
    return text
