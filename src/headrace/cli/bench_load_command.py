"""The command `headrace bench load` as click sees it, and words that other tools use."""

from __future__ import annotations

import click

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
}
DATASETS = {"jsonl": "jsonl", "sharegpt": "sharegpt", "custom": "jsonl"}


class LoadCommand(SectionedCommand):
    """Help by heading; the settings of `serve` have nothing to do here."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What other tools' flags have in common."""
        formatter.write_paragraph()
        formatter.write_text(
            "Lengths are a number, LOW..HIGH, normal(MEAN,DEVIATION) or a list such as 100,2000. "
            "Exit status: 0, 1 more failures than --max-error-rate allows, 2 wrong usage, 3 "
            "nothing succeeded, 4 the SLO was missed (--require-slo), 130 Ctrl-C."
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does: hints of `serve` would mislead."""
        return click.Command.parse_args(self, ctx, args)
