"""The command `headrace bench load` as click sees it, and words that other tools use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

import click

from headrace.cli.bench.load.lists import FOUND
from headrace.cli.sections import SectionedCommand

# Ours, then those of `vllm bench serve` (whose "openai" and "vllm" are completions) and AIPerf.
KINDS = {
    "chat": "openai-chat",
    "completions": "openai-completions",
    "embeddings": "openai-embeddings",
    "anthropic": "anthropic-messages",
    "ollama": "ollama",
    "openai-chat": "openai-chat",
    "openai": "openai-completions",
    "vllm": "openai-completions",
    "openai-completions": "openai-completions",
    "openai-embeddings": "openai-embeddings",
    "anthropic-messages": "anthropic-messages",
    "messages": "anthropic-messages",
}
DATASETS = {"jsonl": "jsonl", "sharegpt": "sharegpt", "custom": "jsonl"}

# As in `bench.definitions`, which would be slow to import for --help; a test compares them.
DEFINITIONS = ("headrace", "vllm", "vllm-0.32", "aiperf", "guidellm", "llmperf")

_ADDRESS = "the address is an argument: headrace bench {command} http://127.0.0.1:8000"
_KEY = "the key is read from HEADRACE_BENCH_API_KEY or OPENAI_API_KEY"
_BODY = "sampling parameters go into the body: --extra-body '{{\"temperature\": 0}}'"
_INTERVALS = "every figure has an interval; --duration sets how long a run is"
_FILES = "--save DIR writes JSON, CSV, JSONL and a page"
_TRACE = "give a file with times as --trace, and a file of prompts as --dataset"
_TURNS = "write --turns normal(MEAN,DEVIATION)"
_SESSIONS = "--requests sets how many requests are sent; each turn of a conversation is one request"
_COUNTS = "both counts are kept: the server's, and with --tokenizer the client's"
_IMAGES = "write --image-size 512x512"

# Flags of other load generators with another name here, another form, or none.
ELSEWHERE = {
    "--host": _ADDRESS,
    "--port": _ADDRESS,
    "--api-key": _KEY,
    "--llm-api": "choose the API with --endpoint-type",
    "--temperature": _BODY,
    "--top-p": _BODY,
    "--top-k": _BODY,
    "--min-p": _BODY,
    "--measurement-interval": _INTERVALS,
    "--stability-percentage": _INTERVALS,
    "--outputs": _FILES,
    "--output-path": _FILES,
    "--output-file": _FILES,
    "--profile-export-file": _FILES,
    "--append-result": "each run gets its own folder: --save DIR",
    "--metadata": "every result records the command and the machine",
    "--fixed-schedule": _TRACE,
    "--custom-dataset-type": _TRACE,
    "--public-dataset": "nothing is downloaded; name a file with --dataset",
    "--hf-split": "nothing is downloaded; name a file with --dataset",
    "--session-turns-stddev": _TURNS,
    "--conversation-turn-stddev": _TURNS,
    "--session-turn-delay-mean": "write --think 500ms",
    "--conversation-turn-delay-mean": "write --think 500ms",
    "--image-width-mean": _IMAGES,
    "--image-height-mean": _IMAGES,
    "--use-server-token-count": _COUNTS,
    "--use-legacy-max-tokens": "max_tokens is sent unless --max-tokens-field names another field",
    "--trust-remote-code": "code that ships with a tokenizer is never run",
    "--tokenizer-trust-remote-code": "code that ships with a tokenizer is never run",
    "--workers-max": "here it is --processes, a number rather than a limit",
    "--max-workers": "here it is --processes, a number rather than a limit",
    "--request-rate-ramp-duration": "a ramp lasts as long as the run: --ramp-from RATE --rate RATE",
    "--warmup-percent": "here it is --warmup, a number of requests",
    "--cooldown": "the steady window already leaves out the end of a run",
    "--cooldown-percent": "the steady window already leaves out the end of a run",
    "--sharegpt-output-len": "answers are as long as those of the file; "
    "--output-tokens is for other prompts",
    "--num-sessions": _SESSIONS,
    "--num-conversations": _SESSIONS,
    "--conversation-num": _SESSIONS,
}


class LoadCommand(SectionedCommand):
    """Help by heading; the settings of `serve` have nothing to do here."""

    elsewhere: Mapping[str, str] = MappingProxyType(ELSEWHERE)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What other tools' flags have in common."""
        formatter.write_paragraph()
        formatter.write_text(
            "Lengths are a number, LOW..HIGH, normal(MEAN,DEVIATION) or a list such as 100,2000. "
            "Exit status: 0, 1 more failures than --max-error-rate allows, 2 wrong usage, 3 "
            "nothing succeeded, 4 the SLO was missed (--require-slo), 130 Ctrl-C or SIGTERM."
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does; `--goodput ttft:500 tpot:50` is one flag with two values, as in vllm, and
        an address behind `--sweep` is not its number of points."""
        _check_switches(args)
        return super().parse_args(ctx, list(_with_each_flagged(_with_bare_sweep(args))))


def _check_switches(args: Sequence[str]) -> None:
    """Elsewhere a number follows, which here would be taken for the address."""
    for arg, after in zip(args, [*args[1:], ""], strict=False):
        flag, _, number = arg.partition("=")
        number = number or after
        if flag == "--min-tokens" and number.isdigit():
            raise click.UsageError(
                f"--min-tokens is a switch and does not take {number}: write --output-tokens "
                f"{number} --min-tokens to ask for answers at least that long"
            )


def _with_bare_sweep(args: Sequence[str]) -> Iterator[str]:
    for arg, after in zip(args, [*args[1:], ""], strict=False):
        yield f"{arg}={FOUND}" if arg == "--sweep" and ":" in after else arg


def _with_each_flagged(args: Iterable[str]) -> Iterator[str]:
    """Conditions that follow a condition get a flag of their own."""
    follows = False
    flagged = False
    for arg in args:
        if follows and _is_condition(arg):
            yield "--goodput"
        follows = flagged or arg.startswith("--goodput=") or (follows and _is_condition(arg))
        flagged = arg == "--goodput"
        yield arg


def _is_condition(text: str) -> bool:
    """And not an address, which may be `localhost:8000`."""
    from headrace.bench.slo import METRIC_NAMES

    return text.partition(":")[0].lower() in METRIC_NAMES and ":" in text
