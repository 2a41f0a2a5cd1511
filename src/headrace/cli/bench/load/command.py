"""`headrace bench load`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.bench.console import wide_console
from headrace.cli.bench.load.load_command import KINDS, LoadCommand
from headrace.cli.bench.load.options import load_options
from headrace.cli.interrupt import INTERRUPTED

if TYPE_CHECKING:
    from headrace.bench.load.experiment import Experiment, RunResult
    from headrace.bench.load.load_options import LoadOptions

DEFAULT_URL = "http://127.0.0.1:8000"

PAGE = "report.html"

FAILURES, UNREACHABLE, SLO_MISSED = 1, 3, 4


@click.command(cls=LoadCommand, short_help="Send requests to an endpoint and measure the replies.")
@click.argument("url", required=False)
@load_options
def load(url: str | None, **given: Any) -> None:
    """Send requests to the endpoint at URL [http://127.0.0.1:8000] and measure the replies.

    Every chunk's time is kept, so that one run can be reported under the definitions of five tools.
    Latencies are counted both from the time at which a request should have been sent and from the
    time at which it was sent; SLOs are judged by the former. The key is read from
    HEADRACE_BENCH_API_KEY or OPENAI_API_KEY.

    \b
    headrace bench load http://127.0.0.1:8000 --rate 4 --requests 200
    headrace bench load --concurrency 8 --duration 60 --goodput ttft:500 tpot:50 --save run
    headrace bench load --sweep --concurrency 1,4,16 --output-tokens 128 --html page.html
    """
    from headrace.bench.load.probe import UnreachableError
    from headrace.errors import ConfigError

    try:
        status = _run({"url": url, **given})
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    except UnreachableError as error:
        click.echo(f"headrace: {error}", err=True)
        status = UNREACHABLE
    if status:
        click.get_current_context().exit(status)


def experiment_of(arguments: Sequence[str]) -> tuple[Experiment, LoadOptions]:
    """What `headrace bench load` with these arguments would run, for who wants its records: the
    options are of one run, of a sweep or a search what its runs have in common.

    Raises click.UsageError and ConfigError for wrong usage, UnreachableError where nobody answers.
    """
    given = dict(load.make_context("load", list(arguments)).params)
    return _experiment(given, ["bench", "load", *arguments])


def _experiment(given: dict[str, Any], command: Sequence[str]) -> tuple[Experiment, LoadOptions]:
    from headrace.bench.load.failures import KEY_VARIABLES
    from headrace.cli.bench.load.setup import make_experiment
    from headrace.errors import ConfigError

    url, base_url = given["url"], given["base_url"]
    if url and base_url and url != base_url:
        raise ConfigError("URL and --base-url both give the address; give one of them")
    given["url"] = url or base_url or DEFAULT_URL
    key = next((os.environ[name] for name in KEY_VARIABLES if os.environ.get(name)), None)
    return make_experiment(given, KINDS[given["kind"]], key, command)


def _run(given: dict[str, Any]) -> int:
    from headrace.bench.report.files import check_folder
    from headrace.cli.bench.load.setup import save_of, sweep_of

    experiment, options = _experiment(given, sys.argv[1:])
    if given["save"] is not None:
        check_folder("--save", given["save"])
    if given["html"] is not None:
        check_folder("--html", given["html"].parent)
    if given["search"]:
        from headrace.cli.bench.load.many import search_command

        return search_command(experiment, options, given)
    sweep = sweep_of(given)
    if sweep is not None:
        from headrace.cli.bench.load.many import sweep_command

        return sweep_command(experiment, options, sweep, given)
    how = save_of(given)
    if how is None:
        done = experiment.run()
    else:
        done = experiment.run(keep=how.folder, vllm_form=how.vllm_form)
    # Whichever of the two cannot be written, the other is.
    try:
        save(done, experiment, given)
    finally:
        show(done, given)
    return status_of(done, given)


def show(done: RunResult, given: dict[str, Any]) -> None:
    """The summary, as a table or as JSON; remarks go to stderr."""
    import msgspec

    if given["as_json"]:
        facts = {"about": done.run.about, "summary": done.summary}
        click.echo(msgspec.json.encode(facts))
    elif done.ending != "refused":
        from headrace.bench.report.brief import BriefSummary
        from headrace.bench.report.table import summary_table

        chosen = summary_table if given["detail"] else BriefSummary
        wide_console().print(chosen(done.summary))
    about = done.run.about
    if about.get("prompts_notes"):
        click.echo(f"prompts: {about['prompts_notes']}", err=True)
    if about.get("prompts_repeat"):
        click.echo(
            "prompts: there were too few, so some were sent again; a prefix cache may have "
            "kept those",
            err=True,
        )
    if done.ending == "interrupted":
        click.echo("interrupted: the figures are of what was sent until then", err=True)
    if done.ending == "saturated":
        click.echo("stopped: the server did not keep up with the rate", err=True)
    if done.ending == "refused":
        click.echo("stopped: every request would be refused like the first ones", err=True)


def save(done: RunResult, experiment: Experiment, given: dict[str, Any], **more: Any) -> None:
    """Files of the run and its page, where any were asked for. more: for `report_page`."""
    from headrace.bench.load.save import save_run
    from headrace.bench.report.files import write_text
    from headrace.bench.report.html import report_page
    from headrace.bench.series import forget_series
    from headrace.cli.bench.load.setup import save_of
    from headrace.errors import HeadraceError

    how = save_of(given)
    folder, html = given["save"], given["html"]
    if folder is None and html is None:
        return
    page = report_page(
        done.run, done.summary, slo=experiment.slo, attainment=given["attainment"], **more
    )
    if how is not None:
        save_run(done, experiment, how)
        if "sweep" not in more:
            # The report would show its curves with this run.
            forget_series(how.folder)
    for path in (*([folder / PAGE] if folder is not None else []), *([html] if html else [])):
        try:
            write_text(path, page)
        except OSError as error:
            raise HeadraceError(f"{path}: {error.strerror}") from error
    places = [str(one) for one in (folder, html) if one is not None]
    click.echo(f"saved in {' and '.join(places)}", err=True)


def status_of(done: RunResult, given: dict[str, Any]) -> int:
    """The exit status that the run deserves; says why on stderr where it is not 0."""
    from headrace.bench.load.demands import is_met
    from headrace.bench.load.failures import failure_report

    requests = done.summary.requests
    if done.ending == "interrupted":
        return INTERRUPTED
    ended = requests.completed + requests.failed
    told = failure_report(done.run.requests)
    lost = done.run.about.get("lost_client_processes")
    if not requests.completed:
        click.echo(f"headrace: nothing succeeded: {told}", err=True)
        return UNREACHABLE
    if lost:
        click.echo(
            f"headrace: {lost} client processes died, and what they had measured is lost; the "
            "figures are of the others",
            err=True,
        )
        return FAILURES
    if done.ending == "max_errors" or requests.failed > given["max_error_rate"] * ended:
        click.echo(
            f"headrace: {requests.failed} of {ended} requests failed, more than --max-error-rate "
            f"{given['max_error_rate']:g} allows: {told}",
            err=True,
        )
        return FAILURES
    goodput = done.summary.goodput
    if given["require_slo"] and goodput is not None and not is_met(goodput, given["attainment"]):
        click.echo(f"headrace: the SLO was missed: {goodput.slo}", err=True)
        return SLO_MISSED
    return 0
