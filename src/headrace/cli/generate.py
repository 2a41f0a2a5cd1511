"""`headrace generate`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.notes import note
from headrace.cli.options import CONFIGS, collect, settings
from headrace.cli.sampling import sampling_options, sampling_params
from headrace.cli.sections import SectionedCommand
from headrace.cli.structured import structured_options, structured_outputs
from headrace.config import EngineConfig

if TYPE_CHECKING:
    from headrace.llm import GenerationDelta, GenerationResult
    from headrace.offline.params import SamplingParams

CUT_OFF = 3
"""The exit status where an answer is held to a form and not whole; up to 2 every command has the
same."""


@click.command(cls=SectionedCommand)
@click.argument("model", required=False)
@click.option(
    "-p",
    "--prompt",
    "prompts",
    multiple=True,
    help="Text to continue. [default: stdin; may be repeated]",
)
@sampling_options
@structured_options
@settings(EngineConfig, skip=frozenset({"model"}))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per prompt.")
@click.pass_context
def generate(
    ctx: click.Context,
    /,
    model: str | None,
    prompts: tuple[str, ...],
    stop: tuple[str, ...],
    as_json: bool,
    **values: Any,
) -> None:
    """Continue prompts with MODEL (a path, or a name as for `serve`) and print the result.

    One prompt is printed as it is generated; several run together, as a batch. Each answer follows
    its prompt; one that is held to a form is printed alone, for programs such as jq.
    Without MODEL, the small model that ships in the package is used.

    \b
    headrace generate ./model.gguf -p "Once upon a time" --max-tokens 64
    headrace generate ./model.gguf -p "1, 2, 3," -p "a, b, c," --temperature 0 --json
    headrace generate Qwen/Qwen3-0.6B --stop END < prompt.txt
    headrace generate ./model.gguf -p "Ada, 36 years:" --schema person.json | jq .name

    The exit status is 3 if an answer that is held to a form was cut off before it was whole.
    """
    config = collect(ctx, EngineConfig, among=CONFIGS, overrides={"model": model})
    form = structured_outputs(values)
    texts = [_checked(text) for text in prompts] or [_from_stdin()]
    from msgspec.structs import asdict

    from headrace.cli.obtain import obtain

    config, _ = obtain(config)
    from headrace.llm import LLM

    params = sampling_params(values, form)
    llm = LLM(**asdict(config))
    cuts: list[str] = []
    if as_json or len(texts) > 1:
        start = time.perf_counter()
        results = llm.generate(texts, params, stop=stop)
        seconds = time.perf_counter() - start
        for text, result in zip(texts, results, strict=True):
            if as_json:
                _print_json(text, result, seconds)
            else:
                click.echo((text if form is None else "") + result.text)
            cuts.append(_cut(result, len(result.token_ids), params))
    else:
        deltas = llm.stream(texts[0], params, stop=stop)
        cuts.append(_cut(*_print_stream(deltas, texts[0] if form is None else ""), params))
    if form is not None and any(cuts):
        for number, cut in enumerate(cuts, 1):
            of_prompt = f" of prompt {number}" if len(cuts) > 1 else ""
            if cut:
                note(f"headrace: the answer{of_prompt} {cut}: it is not whole", "yellow")
        ctx.exit(CUT_OFF)


def _cut(end: GenerationResult | GenerationDelta, num_tokens: int, params: SamplingParams) -> str:
    """How an answer was cut off; "" where it ended by itself. end: all of it, or its last delta."""
    match end.finish_reason:
        case "length" if num_tokens == params.max_tokens:
            return f"was cut at --max-tokens {num_tokens}"
        case "length":
            return f"was cut after {num_tokens} tokens, where the context is full"
        case "stop" if isinstance(end.stop_reason, str):
            return f"was cut at --stop {end.stop_reason!r}"
        case "stop":
            return ""
    return f"ended by {end.finish_reason}"


def _print_json(prompt: str, result: GenerationResult, seconds: float) -> None:
    import msgspec

    fields = msgspec.to_builtins(result)
    for name in ("content", "reasoning", "reasoning_tokens", "tool_calls"):  # of chats
        del fields[name]
    click.echo(msgspec.json.encode({"prompt": prompt, **fields, "wall_s": round(seconds, 6)}))


def _checked(text: str) -> str:
    """A prompt as typed; bytes that are not UTF-8 reach Python as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise click.BadParameter("is not valid UTF-8", param_hint="'--prompt'") from None
    return text


def _from_stdin() -> str:
    if sys.stdin.isatty():
        click.secho(
            "type the prompt and end it with Ctrl-D (or give -p TEXT)", fg="bright_black", err=True
        )
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"the text on stdin is not valid UTF-8: {error}") from None


def _print_stream(deltas: Iterator[GenerationDelta], prefix: str) -> tuple[GenerationDelta, int]:
    """Print an answer while it is generated; its last delta, and the number of its tokens.

    prefix: what stands before it, shown with its first piece: a request that is refused prints
    nothing.
    """
    num_tokens = 0
    for delta in deltas:
        click.echo(prefix + delta.text, nl=False)
        sys.stdout.flush()
        prefix = ""
        num_tokens += len(delta.token_ids)
        if delta.error is not None:
            raise click.ClickException(delta.error)
    click.echo()
    return delta, num_tokens
