"""A command whose help has its options under headings, and which knows other servers' flags.

An option says under which heading it stands (`SectionOption`); those without one come first. A
setting's heading is that of the nearest setting at or before it in its config that `HEADINGS`
names, so a new setting is never without. A flag that is vLLM's or llama-server's own is still an
error, which then says what it is called here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import click

from headrace.config import Flag
from headrace.config.vllm.engine_args import ENGINE_ARGS
from headrace.config.vllm.server_args import SERVER_ARGS

# By the first setting that stands under each.
HEADINGS = {
    "max_model_len": "Context and KV cache",
    "max_num_batched_tokens": "Scheduling",
    "backend": "Processor or device",
    "ignore_config_keys": "Model files",
    "host": "Address and TLS",
    "api_key": "Keys",
    "allowed_origins": "Pages of other origins (CORS)",
    "max_body_bytes": "Limits on clients",
    "max_num_queued_reqs": "Load and time",
    "max_engine_restarts": "Watching the engine",
    "served_model_name": "Names and chat templates",
    "enable_force_include_usage": "Replies",
    "log_level": "Log and traces",
}

_MODEL = "the model is an argument: headrace {command} MODEL"
_LAYERS = "all layers are computed on one device, which --device sets"

# Flags of llama-server with another name here, or none, and those of any server for the model.
_LLAMA_SERVER = {
    "--model": _MODEL,
    "-m": _MODEL,
    "--hf-repo": _MODEL,
    "-hf": _MODEL,
    "--ctx-size": "here it is --max-model-len",
    "-c": "here it is --max-model-len",
    "--parallel": "here it is --max-num-seqs",
    "-np": "here it is --max-num-seqs",
    "--batch-size": "here it is --max-num-batched-tokens",
    "-b": "here it is --max-num-batched-tokens",
    "--ubatch-size": "here it is --max-num-batched-tokens",
    "-t": "here it is --threads",
    "--alias": "here it is --served-model-name",
    "-a": "here it is --served-model-name",
    "--n-gpu-layers": _LAYERS,
    "--gpu-layers": _LAYERS,
    "-ngl": _LAYERS,
    "--api-key-file": "the keys are read from HEADRACE_API_KEY",
    "--jinja": "chat templates are always rendered",
}


def flag_of(name: str) -> str:
    """A setting as it is typed."""
    return "--" + name.replace("_", "-")


# Flags of `vllm serve` and llama-server with another name here, or none.
ELSEWHERE = {
    flag: setting.hint(flag_of)
    for setting in (*ENGINE_ARGS.values(), *SERVER_ARGS.values())
    for flag in (flag_of(setting.name), *setting.flags)
} | _LLAMA_SERVER


def headings_of(flags: Iterator[Flag]) -> Iterator[tuple[Flag, str | None]]:
    """Each of a config's flags with its heading."""
    heading = None
    for flag in flags:
        heading = HEADINGS.get(flag.name, heading)
        yield flag, heading


class SectionOption(click.Option):
    """An option with the heading it stands under; None: the first one, "Options"."""

    def __init__(self, *args: Any, section: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section


class SectionedCommand(click.Command):
    """A command of many options. elsewhere: flags that it refuses, and what to write instead."""

    elsewhere: Mapping[str, str] = MappingProxyType(ELSEWHERE)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Options by heading, in the order in which headings and options first come."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for param in self.get_params(ctx):
            # click gives arguments a record too; the usage line has told of them.
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                sections.setdefault(getattr(param, "section", None) or "Options", []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What holds for many options."""
        formatter.write_paragraph()
        formatter.write_text(
            "An INTEGER may be written 32k (32,000) or 32K (32,768), and also with m, g, t."
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does; a flag of another server is refused with its name here."""
        typed = [arg.partition("=")[0] for arg in args]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = next((one for one in typed if one in self.elsewhere and _is(one, error)), None)
            if name is None:
                raise
            hint = self.elsewhere[name].format(command=ctx.info_name)
            raise click.NoSuchOption(
                name, message=f"No such option {name!r}: {hint}.", ctx=ctx
            ) from None


def _is(typed: str, error: click.NoSuchOption) -> bool:
    """Whether that is what the error is about: click takes -ngl for -n, -g and -l in a row."""
    row = not typed.startswith("--") and error.option_name.lstrip("-") in typed
    return typed == error.option_name or row
