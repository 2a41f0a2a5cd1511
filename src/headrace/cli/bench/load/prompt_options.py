"""The options of `headrace bench load` that say what is sent, with the names other tools have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from headrace.cli.bench.load.choices import DATASETS_ELSEWHERE, HintedChoice
from headrace.cli.bench.load.load_command import DATASETS
from headrace.cli.numbers import NumberRange
from headrace.cli.sections import SectionOption

F = TypeVar("F", bound=Callable[..., Any])

_PROMPTS = "What is sent"

_count = click.IntRange(1)


def section_option(section: str, *names: str, **given: Any) -> Callable[[F], F]:
    """As `click.option`, under a heading."""
    return click.option(*names, cls=SectionOption, section=section, **given)


PROMPT_OPTIONS = (
    section_option(
        _PROMPTS,
        "--input-tokens",
        "--isl",
        "--random-input-len",
        "--input-len",
        "--synthetic-input-tokens-mean",
        "--prompt-input-tokens-mean",
        "--mean-input-tokens",
        "input_tokens",
        help="Lengths of synthetic prompts, in tokens. [default: 256]",
    ),
    section_option(
        _PROMPTS,
        "--input-tokens-stddev",
        "--isl-stddev",
        "--synthetic-input-tokens-stddev",
        "--prompt-input-tokens-stddev",
        "--stddev-input-tokens",
        "input_stddev",
        type=NumberRange(0),
        help="Standard deviation of --input-tokens, which are then drawn from a normal "
        "distribution, 1 or more.",
    ),
    section_option(
        _PROMPTS,
        "--output-tokens",
        "--osl",
        "--random-output-len",
        "--output-len",
        "--custom-output-len",
        "--output-tokens-mean",
        "--prompt-output-tokens-mean",
        "--mean-output-tokens",
        "output_tokens",
        help="Lengths of answers, in tokens (max_tokens). [default: 128]",
    ),
    section_option(
        _PROMPTS,
        "--output-tokens-stddev",
        "--osl-stddev",
        "--prompt-output-tokens-stddev",
        "--stddev-output-tokens",
        "output_stddev",
        type=NumberRange(0),
        help="Standard deviation of --output-tokens, in the same way.",
    ),
    section_option(
        _PROMPTS,
        "--data",
        metavar="KEY=NUMBER,...",
        help="Lengths as GuideLLM writes them: prompt_tokens=256,output_tokens=128, with _stdev, "
        "_min and _max of each; or a file, as --dataset.",
    ),
    section_option(
        _PROMPTS,
        "--range-ratio",
        "--random-range-ratio",
        "range_ratio",
        type=NumberRange(0, 1, max_open=True),
        help="Draw both lengths uniformly from this share below to this share above.",
    ),
    section_option(
        _PROMPTS,
        "--prefix-tokens",
        "--random-prefix-len",
        "--prompt-prefix-length",
        "--prefix-prompt-length",
        "prefix_tokens",
        help="Length of the beginning that prompts share, in tokens; in conversations, of the "
        "system message.",
    ),
    section_option(
        _PROMPTS,
        "--prefixes",
        "--num-prefix-prompts",
        "--prompt-prefix-pool-size",
        "--prefix-prompt-pool-size",
        "prefixes",
        type=_count,
        default=1,
        show_default=True,
        help="Number of different shared beginnings.",
    ),
    section_option(
        _PROMPTS,
        "--dataset",
        "--dataset-path",
        "--input-file",
        "dataset",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help="File of prompts: JSONL, or ShareGPT's JSON.",
    ),
    section_option(
        _PROMPTS,
        "--dataset-kind",
        "--dataset-name",
        "dataset_kind",
        type=HintedChoice([*DATASETS, "random"], DATASETS_ELSEWHERE),
        help="Format of --dataset; `random` means synthetic prompts. [default: sharegpt for "
        ".json, else jsonl]",
    ),
    section_option(
        _PROMPTS,
        "--trace",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help="File of a trace with lengths and times: Azure, BurstGPT, Mooncake, Vidur; or JSONL "
        "with prompts and their times.",
    ),
    section_option(
        _PROMPTS,
        "--trace-block-tokens",
        "--isl-block-size",
        "--synthetic-input-tokens-block-size",
        "--prompt-input-tokens-block-size",
        "block_tokens",
        type=_count,
        help="Tokens that each hash id of a trace stands for. [default: 512]",
    ),
    section_option(
        _PROMPTS,
        "--turns",
        "--session-turns-mean",
        "--conversation-turn-mean",
        "turns",
        help="Turns of each conversation, written as lengths are; with ShareGPT, the maximum.",
    ),
    section_option(
        _PROMPTS,
        "--think",
        default="0",
        show_default=True,
        help="Seconds between turns: 2, 500ms, 1..5, exponential(4).",
    ),
    section_option(
        _PROMPTS, "--image-size", "images", help="Size of an image sent with each prompt: 512x512."
    ),
    section_option(
        _PROMPTS,
        "--unique-prompts",
        "unique",
        is_flag=True,
        help="Put different words in front of each prompt, new in every run, so that no prefix is "
        "cached.",
    ),
    section_option(
        _PROMPTS,
        "--ignore-eos",
        is_flag=True,
        help="Ask for answers of the full length with vllm's ignore_eos.",
    ),
    section_option(
        _PROMPTS,
        "--min-tokens",
        is_flag=True,
        help="Ask for answers of the full length with min_tokens, for servers that support it.",
    ),
    section_option(
        _PROMPTS,
        "--streaming/--no-streaming",
        default=True,
        show_default=True,
        help="Ask for a stream; without one TTFT cannot be measured.",
    ),
    section_option(
        _PROMPTS,
        "--extra-body",
        "--extra-inputs",
        "--additional-sampling-params",
        "extra_body",
        multiple=True,
        metavar="JSON",
        help="Further fields of every request's body, as a JSON object or NAME:VALUE.",
    ),
    section_option(
        _PROMPTS,
        "--max-tokens-field",
        "max_tokens_field",
        type=click.Choice(["max_tokens", "max_completion_tokens"]),
        default="max_tokens",
        show_default=True,
        help="Field of a chat request that limits the length of the answer; OpenAI's reasoning "
        "models take only the second.",
    ),
    section_option(
        _PROMPTS,
        "--include-usage/--no-include-usage",
        default=True,
        show_default=True,
        help="Ask for token counts at the end of a stream (stream_options); turn it off for "
        "servers that refuse it, and count with --tokenizer.",
    ),
    section_option(
        _PROMPTS,
        "--continuous-usage",
        "--continuous-usage-stats",
        "continuous_usage",
        is_flag=True,
        help="Ask for token counts with every chunk, if the server supports "
        "continuous_usage_stats: gaps per token are then exact.",
    ),
    section_option(
        _PROMPTS,
        "--return-metrics/--no-return-metrics",
        default=None,
        help="Ask for each request's time in the queue, which headrace reports. [default: on if "
        "the server says that it is headrace]",
    ),
    section_option(
        _PROMPTS,
        "--tokenizer",
        "--processor",
        "tokenizer",
        help="Checkpoint whose tokenizer makes prompts of the wanted lengths and, after the run, "
        "counts outputs. [default: the embedded model's, which does not count]",
    ),
    section_option(
        _PROMPTS,
        "--seed",
        "--random-seed",
        "seed",
        type=int,
        default=0,
        show_default=True,
        help="Seed of prompts and arrivals.",
    ),
)
