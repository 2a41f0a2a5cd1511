"""The options of `headrace bench load` that say what is sent, with the names other tools have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from headrace.cli.bench.load.choices import DATASETS_ELSEWHERE, HintedChoice
from headrace.cli.bench.load.load_command import DATASETS
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
        help="Lengths of synthetic prompts. [default: 256]",
    ),
    section_option(
        _PROMPTS,
        "--input-tokens-stddev",
        "--isl-stddev",
        "--synthetic-input-tokens-stddev",
        "--prompt-input-tokens-stddev",
        "--stddev-input-tokens",
        "input_stddev",
        type=click.FloatRange(0),
        help="Standard deviation of --input-tokens, drawn from a normal distribution, from 1 up.",
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
        help="Lengths of answers (max_tokens). [default: 128]",
    ),
    section_option(
        _PROMPTS,
        "--output-tokens-stddev",
        "--osl-stddev",
        "--prompt-output-tokens-stddev",
        "--stddev-output-tokens",
        "output_stddev",
        type=click.FloatRange(0),
        help="Standard deviation of --output-tokens, likewise.",
    ),
    section_option(
        _PROMPTS,
        "--data",
        metavar="KEY=NUMBER,...",
        help="Lengths as GuideLLM has them: prompt_tokens=256,output_tokens=128, with _stdev, _min "
        "and _max of each; or a file, as --dataset.",
    ),
    section_option(
        _PROMPTS,
        "--range-ratio",
        "--random-range-ratio",
        "range_ratio",
        type=click.FloatRange(0, 1, max_open=True),
        help="Both lengths vary by this share either way, evenly.",
    ),
    section_option(
        _PROMPTS,
        "--prefix-tokens",
        "--random-prefix-len",
        "--prompt-prefix-length",
        "--prefix-prompt-length",
        "prefix_tokens",
        help="Length of a beginning that prompts share; of conversations, their system message.",
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
        help="How many different beginnings there are.",
    ),
    section_option(
        _PROMPTS,
        "--dataset",
        "--dataset-path",
        "--input-file",
        "dataset",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help="Prompts of a file: JSONL, or ShareGPT's JSON.",
    ),
    section_option(
        _PROMPTS,
        "--dataset-kind",
        "--dataset-name",
        "dataset_kind",
        type=HintedChoice([*DATASETS, "random"], DATASETS_ELSEWHERE),
        help="Format of --dataset; `random` is synthetic prompts. [default: sharegpt for .json, "
        "else jsonl]",
    ),
    section_option(
        _PROMPTS,
        "--trace",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help="Lengths and times of a trace: Azure, BurstGPT, Mooncake, Vidur; or JSONL with "
        "prompts and their times.",
    ),
    section_option(
        _PROMPTS,
        "--trace-block-tokens",
        "--isl-block-size",
        "--synthetic-input-tokens-block-size",
        "--prompt-input-tokens-block-size",
        "block_tokens",
        type=_count,
        help="Tokens that each of a trace's hash ids stands for. [default: 512]",
    ),
    section_option(
        _PROMPTS,
        "--turns",
        "--session-turns-mean",
        "--conversation-turn-mean",
        "turns",
        help="Turns of each conversation, as lengths are written; of ShareGPT, the most.",
    ),
    section_option(
        _PROMPTS,
        "--think",
        default="0",
        show_default=True,
        help="Seconds between turns: 2, 500ms, 1..5, exponential(4).",
    ),
    section_option(_PROMPTS, "--image-size", "images", help="An image with each prompt: 512x512."),
    section_option(
        _PROMPTS,
        "--unique-prompts",
        "unique",
        is_flag=True,
        help="Words of its own in front of each prompt, new in every run: no prefix is cached.",
    ),
    section_option(
        _PROMPTS,
        "--ignore-eos",
        is_flag=True,
        help="Ask for answers of the full length, as vllm's ignore_eos.",
    ),
    section_option(
        _PROMPTS,
        "--min-tokens",
        is_flag=True,
        help="Ask for the full length as min_tokens, for servers that know that.",
    ),
    section_option(
        _PROMPTS,
        "--streaming/--no-streaming",
        default=True,
        show_default=True,
        help="Ask for a stream; without one there is no TTFT.",
    ),
    section_option(
        _PROMPTS,
        "--extra-body",
        "--extra-inputs",
        "--additional-sampling-params",
        "extra_body",
        multiple=True,
        metavar="JSON",
        help="Fields of every request's body; or NAME:VALUE.",
    ),
    section_option(
        _PROMPTS,
        "--max-tokens-field",
        "max_tokens_field",
        type=click.Choice(["max_tokens", "max_completion_tokens"]),
        default="max_tokens",
        show_default=True,
        help="Which field of a chat has the answer's length; OpenAI's reasoning models take only "
        "the second.",
    ),
    section_option(
        _PROMPTS,
        "--include-usage/--no-include-usage",
        default=True,
        show_default=True,
        help="Ask for token counts at the end of a stream (stream_options); not where a server "
        "refuses that: then --tokenizer counts.",
    ),
    section_option(
        _PROMPTS,
        "--continuous-usage",
        "--continuous-usage-stats",
        "continuous_usage",
        is_flag=True,
        help="Ask for token counts with every chunk, where the server knows "
        "continuous_usage_stats: gaps by token are then exact.",
    ),
    section_option(
        _PROMPTS,
        "--return-metrics/--no-return-metrics",
        default=None,
        help="Ask for each request's time in the queue, which headrace tells. [default: where the "
        "server says that it is headrace]",
    ),
    section_option(
        _PROMPTS,
        "--tokenizer",
        "--processor",
        "tokenizer",
        help="Checkpoint whose tokenizer makes lengths and, after the run, counts outputs. "
        "[default: the embedded model's, which counts nothing]",
    ),
    section_option(
        _PROMPTS,
        "--seed",
        "--random-seed",
        "seed",
        type=int,
        default=0,
        show_default=True,
        help="Of prompts and arrivals.",
    ),
)
