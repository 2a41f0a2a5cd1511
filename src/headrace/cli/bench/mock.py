"""`headrace bench mock`."""

from __future__ import annotations

import os
from typing import Any

import click

# 8000 is the server's own, and both run side by side when they are compared.
DEFAULT_PORT = 8010
API_KEY_VARIABLE = "HEADRACE_MOCK_API_KEY"

_SPREAD = "a number, uniform:LOW:HIGH, normal:MEAN:DEVIATION or lognormal:MEDIAN:SIGMA"


@click.command(short_help="Serve an OpenAI endpoint without a model, at chosen speeds.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Port to listen on; 0: any free port.",
)
@click.option("--model", default="mock", show_default=True, help="Name of the model in /v1/models.")
@click.option(
    "--ttft",
    "ttft_ms",
    default="100",
    show_default=True,
    help=f"Milliseconds until the first content: {_SPREAD}.",
)
@click.option(
    "--ttft-per-token",
    "ttft_per_token_us",
    type=float,
    default=0.0,
    show_default=True,
    help="Additional microseconds for each token (word) of the prompt.",
)
@click.option(
    "--tpot",
    "tpot_ms",
    default="10",
    show_default=True,
    help="Milliseconds between tokens, drawn once for each request; written as --ttft.",
)
@click.option(
    "--jitter",
    "jitter_ms",
    type=float,
    default=0.0,
    show_default=True,
    help="Standard deviation of each chunk's time, in milliseconds; it does not accumulate.",
)
@click.option(
    "--tokens-per-chunk",
    default="1",
    show_default=True,
    help="Tokens in each chunk after the first; written as --ttft.",
)
@click.option(
    "--output-tokens",
    default="",
    help="Tokens after which the model ends by itself; written as --ttft. [default: max_tokens, "
    "or 128]",
)
@click.option(
    "--reasoning-tokens",
    type=int,
    default=0,
    show_default=True,
    help="Tokens of reasoning at the beginning of the output.",
)
@click.option(
    "--reasoning-field",
    type=click.Choice(["reasoning_content", "reasoning"]),
    default="reasoning_content",
    show_default=True,
    help="Name of the field that carries reasoning.",
)
@click.option(
    "--role-chunk",
    type=click.Choice(["at-once", "with-first", "none"]),
    default="at-once",
    show_default=True,
    help="When the chunk that opens a chat stream is sent.",
)
@click.option(
    "--error",
    "errors",
    multiple=True,
    metavar="KIND:RATE",
    help="Share of requests that fail, and how they fail: a status such as 429 or 500, "
    "reset-before, reset-inside, truncated, html, endless or error-event; may be repeated.",
)
@click.option(
    "--retry-after",
    "retry_after_s",
    type=float,
    default=1.0,
    show_default=True,
    help="Seconds in the Retry-After header of a 429 or 503.",
)
@click.option(
    "--stall-rate",
    type=float,
    default=0.0,
    show_default=True,
    help="Share of requests that pause once in the stream.",
)
@click.option(
    "--stall",
    "stall_ms",
    default="1000",
    show_default=True,
    help="Milliseconds of that pause; written as --ttft.",
)
@click.option(
    "--capacity",
    type=int,
    help="Requests processed at once; others wait in order. [default: all]",
)
@click.option(
    "--max-queued",
    type=int,
    help="Requests that may wait; others get 429. [default: all]",
)
@click.option(
    "--dimensions", type=int, default=8, show_default=True, help="Dimensions of an embedding."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of all random numbers.")
@click.option("--json", "as_json", is_flag=True, help="Print messages as JSON lines.")
def mock(host: str, port: int, as_json: bool, errors: tuple[str, ...], **values: Any) -> None:
    """Serve an OpenAI-compatible endpoint without a model, with programmed times and faults.

    It serves chat completions, completions and embeddings, streamed or not. Each chunk carries the
    time at which it was sent, so that a client on this machine can measure its own error. If
    HEADRACE_MOCK_API_KEY is set, clients have to send that key.

    \b
    headrace bench mock
    headrace bench mock --port 9000 --ttft 200 --seed 1 --json
    """
    from headrace.bench.mock.run import run_mock
    from headrace.bench.mock.settings import MockSettings, parse_error

    settings = MockSettings(
        errors=tuple(parse_error(error) for error in errors),
        api_key=os.environ.get(API_KEY_VARIABLE) or None,
        **values,
    )

    def announce(url: str) -> None:
        _print(
            {"url": url, "model": settings.model},
            f"headrace bench mock serves at {url}/v1",
            as_json,
        )

    outcomes = run_mock(settings, host, port, announce)
    told = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items()))
    _print({"requests": outcomes}, f"requests: {told or 'none'}", as_json)


def _print(facts: dict[str, Any], line: str, as_json: bool) -> None:
    import msgspec

    click.echo(msgspec.json.encode(facts).decode() if as_json else line)
