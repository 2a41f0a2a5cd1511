"""`headrace bench load`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.bench_load_command import KINDS, LoadCommand
from headrace.cli.bench_load_options import load_options
from headrace.cli.interrupt import INTERRUPTED

if TYPE_CHECKING:
    from headrace.bench.load.experiment import Done, Experiment

DEFAULT_URL = "http://127.0.0.1:8000"
KEY_VARIABLES = ("HEADRACE_BENCH_API_KEY", "OPENAI_API_KEY")

LOG_WIDTH = 120

FAILURES, UNREACHABLE, SLO_MISSED = 1, 3, 4


@click.command(cls=LoadCommand)
@click.argument("url", required=False)
@load_options
def load(url: str | None, **given: Any) -> None:
    """Send requests to the endpoint at URL [http://127.0.0.1:8000] and measure what comes back.

    Every chunk's time is kept, so that one run can be reported under the definitions of five tools.
    Latencies are given from the time at which a request should have been sent and from when it
    was; SLOs are judged from the former. The key is read from HEADRACE_BENCH_API_KEY, or
    OPENAI_API_KEY.
    """
    from headrace.bench.load.probe import UnreachableError
    from headrace.errors import ConfigError

    if url and given["base_url"] and url != given["base_url"]:
        raise click.UsageError("URL and --base-url are two addresses; give one")
    given["url"] = url or given.pop("base_url") or DEFAULT_URL
    try:
        status = _run(given)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    except UnreachableError as error:
        click.echo(f"headrace: {error}", err=True)
        status = UNREACHABLE
    if status:
        click.get_current_context().exit(status)


def _run(given: dict[str, Any]) -> int:
    from headrace.cli.bench_load_setup import make_experiment

    key = next((os.environ[name] for name in KEY_VARIABLES if os.environ.get(name)), None)
    experiment, options = make_experiment(given, KINDS[given["kind"]], key, sys.argv[1:])
    if given["save"] is not None:
        _check_folder(given["save"])
    if given["search"]:
        from headrace.cli.bench_load_many import run_search

        return run_search(experiment, options, given)
    if given["sweep"] is not None:
        from headrace.cli.bench_load_many import run_sweep

        return run_sweep(experiment, options, given)
    done = experiment.run()
    show(done, given)
    save(done, experiment, given)
    return status_of(done, given)


def show(done: Done, given: dict[str, Any]) -> None:
    """The summary, as a table or as JSON; remarks go to stderr."""
    import msgspec

    if given["as_json"]:
        facts = {"about": done.run.about, "summary": done.summary}
        click.echo(msgspec.json.encode(facts))
    else:
        from rich.console import Console

        from headrace.bench.report.table import summary_table

        console = Console()
        # In a log nothing is as narrow as a terminal may be.
        if not console.is_terminal:
            console.width = max(console.width, LOG_WIDTH)
        console.print(summary_table(done.summary))
    about = done.run.about
    if about.get("prompts_notes"):
        click.echo(f"prompts: {about['prompts_notes']}", err=True)
    if about.get("prompts_repeat"):
        click.echo(
            "prompts: there were too few, and some were sent again; a prefix cache knows those",
            err=True,
        )
    if about.get("lost_client_processes"):
        click.echo(
            f"client processes that died, with their records: {about['lost_client_processes']}",
            err=True,
        )
    if done.ending == "interrupted":
        click.echo("interrupted: figures are of what was sent until then", err=True)


def save(done: Done, experiment: Experiment, given: dict[str, Any], **more: Any) -> None:
    """Files of the run and its page, where a folder was named. more: for `report_page`."""
    folder: Path | None = given["save"]
    if folder is None:
        return
    from headrace.bench.report.files import write_run
    from headrace.bench.report.html import report_page
    from headrace.errors import HeadraceError

    about = done.run.about
    try:
        write_run(
            folder,
            done.run,
            done.summary,
            slo=experiment.slo,
            definition=experiment.definition,
            vllm_keys={
                "date": str(about["started"]),
                "endpoint_type": experiment.endpoint.kind,
                "model_id": experiment.endpoint.model,
                "tokenizer_id": str(about["tokenizer"]),
                "num_prompts": done.summary.requests.measured,
                "request_rate": given["rate"] if given["rate"] is not None else "inf",
                "max_concurrency": given["concurrency"],
            },
            percentiles=given["percentiles"],
            detailed=given["detailed"],
        )
        page = report_page(done.run, done.summary, slo=experiment.slo, **more)
        (folder / "report.html").write_text(page, encoding="utf-8")
    except OSError as error:
        raise HeadraceError(f"--save {folder}: {error.strerror}") from error
    click.echo(f"saved in {folder}", err=True)


def status_of(done: Done, given: dict[str, Any]) -> int:
    """The exit status that the run deserves; says why on stderr where it is not 0."""
    from headrace.bench.load.demands import is_met

    requests = done.summary.requests
    if done.ending == "interrupted":
        return INTERRUPTED
    ended = requests.completed + requests.failed
    if not requests.completed:
        click.echo(f"headrace: nothing succeeded: {first_failure(done)}", err=True)
        return UNREACHABLE
    if done.ending == "max_errors" or requests.failed > given["max_error_rate"] * ended:
        click.echo(
            f"headrace: {requests.failed} of {ended} requests failed, more than --max-error-rate "
            f"{given['max_error_rate']:g} allows, the first with: {first_failure(done)}",
            err=True,
        )
        return FAILURES
    goodput = done.summary.goodput
    if given["require_slo"] and goodput is not None and not is_met(goodput, given["attainment"]):
        click.echo(f"headrace: the SLO was missed: {goodput.slo}", err=True)
        return SLO_MISSED
    return 0


def first_failure(done: Done) -> str:
    """Of a measured request, where there is one, and not one that the end cut off."""
    failures = [one.failure for one in done.run.requests if one.failure is not None]
    worst = [one for one in failures if one.kind != "cancelled"] or failures
    if not worst:
        return "no request was sent"
    refused = any(one.status in (401, 403) for one in done.run.requests)
    hint = f" (keys are read from {' and '.join(KEY_VARIABLES)})" if refused else ""
    return worst[0].message + hint


def _check_folder(folder: Path) -> None:
    """Before minutes of measuring: a folder that cannot be made."""
    from headrace.errors import ConfigError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--save {folder}: {error.strerror}") from error
