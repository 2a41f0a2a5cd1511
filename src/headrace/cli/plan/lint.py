"""`headrace plan lint`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from headrace.cli.plan.options import catalog_of, hardware_named

CLEAN, FOUND, BAD_INPUT = 0, 1, 2


class _Command(click.Command):
    """Words after -- are a command of an engine, whose flags are not ours.

    Exit status 2 for whatever is no input, as for a usage error.
    """

    def invoke(self, ctx: click.Context) -> Any:
        from headrace.errors import HeadraceError

        try:
            return super().invoke(ctx)
        except HeadraceError as error:
            click.echo(f"headrace: {error}", err=True)
            ctx.exit(BAD_INPUT)


def _ids(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (value or "").split(",") if part.strip())


@click.command(cls=_Command, short_help="Find pitfalls in configs, runs and prompts.")
@click.argument("targets", nargs=-1, metavar="[CONFIG|RUN]... [-- COMMAND]")
@click.option(
    "--prompts",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="JSONL file of requests, each line with messages or a prompt. [may be repeated]",
)
@click.option(
    "--runtime",
    type=click.Choice(("headrace", "vllm", "llama.cpp")),
    help="Engine whose settings a YAML file holds. [default: headrace if it knows them all, else "
    "vllm]",
)
@click.option(
    "--hardware",
    help="A device or machine of the catalog that the engine runs on, `this` machine (a card of it "
    "where nvidia-smi lists any, else its CPU), or `cpu`, its CPU.",
)
@click.option("--count", type=click.IntRange(1), default=1, help="Number of devices. [default: 1]")
@click.option(
    "--model",
    help="The model, named as in `headrace plan fit`. [default: the config's, if it is on this "
    "disk or in the catalog]",
)
@click.option(
    "--tokenizer",
    help="A model on this disk, or a tokenizer.json, to count tokens with. [default: the model's]",
)
@click.option(
    "--quantization",
    help="Storage kind of the weights, as the catalog names it. [default: the config's, or bf16]",
)
@click.option(
    "--evaluation",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File with what `headrace eval --json` printed for this configuration.",
)
@click.option(
    "--only", callback=_ids, metavar="IDS", help="Run only these checks, such as L-prefix,L-rtn."
)
@click.option("--skip", callback=_ids, metavar="IDS", help="Skip these checks.")
@click.option(
    "--fail-on",
    type=click.Choice(("warning", "error")),
    default="warning",
    show_default=True,
    help="Exit with 1 if there is a finding of this severity or higher.",
)
@click.option("--list", "as_list", is_flag=True, help="List the checks and exit.")
@click.option(
    "--catalog",
    "folders",
    multiple=True,
    type=click.Path(),
    help="Folder of catalog files that override the built-in ones. [may be repeated]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def lint(targets: tuple[str, ...], **options: Any) -> None:
    """Find known pitfalls in configs, bench results and prompts, with evidence and remedy.

    Each CONFIG is a YAML file with settings of headrace or vLLM; a script, systemd unit, compose or
    Kubernetes file with a command of headrace, vLLM or llama-server; or a gateway's config in
    LiteLLM's format. Each RUN is a folder that `headrace bench load --save` wrote. A command can be
    written after --. Checks that lack an input are listed, never silently skipped. Exit status 0:
    nothing found, 1: findings, 2: bad input.

    \b
      headrace plan lint serve.yaml --hardware h100-sxm
      headrace plan lint litellm.yaml run/ --prompts requests.jsonl
      headrace plan lint --hardware h100-sxm -- vllm serve qwen3-8b --max-num-seqs 1
    """
    from headrace.plan.lint.checks import CHECKS, chosen

    if options["as_list"]:
        _list(CHECKS, options["as_json"])
        return
    if not targets and not options["prompts"]:
        raise click.UsageError("name a config, a run, --prompts, or a command after --")
    from headrace.plan.lint.known import LintOptions
    from headrace.plan.lint.lint import lint as lint_of
    from headrace.plan.lint.targets import read_targets

    checks = chosen(options["only"], options["skip"])
    known = catalog_of(options["folders"])
    hardware = options["hardware"]
    given = LintOptions(
        catalog=known,
        environ=os.environ,
        hardware=None if hardware is None else hardware_named(known, hardware, options["count"]),
        count=options["count"],
        model=options["model"],
        tokenizer=options["tokenizer"],
        quantization=options["quantization"],
        evaluation=options["evaluation"],
    )
    report = lint_of(read_targets(targets, options["prompts"], options["runtime"]), given, checks)
    if options["as_json"]:
        import json

        click.echo(json.dumps(report.as_dict(), indent=2, ensure_ascii=False))
    else:
        from headrace.cli.plan.tables.lint import print_report

        print_report(report)
    failed = report.at_or_above(options["fail_on"])
    click.get_current_context().exit(FOUND if failed else CLEAN)


def _list(checks: Any, as_json: bool) -> None:
    if as_json:
        import json

        click.echo(
            json.dumps(
                [
                    {
                        "id": one.id,
                        "title": one.title,
                        "severity": one.severity,
                        "looks_at": list(one.looks_at),
                        "needs": one.needs,
                        "remedy": one.remedy,
                        "sources": list(one.sources),
                    }
                    for one in checks
                ],
                indent=2,
            )
        )
        return
    from headrace.cli.plan.tables.lint import print_checks

    print_checks(checks)
