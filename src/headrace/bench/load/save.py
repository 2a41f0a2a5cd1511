"""The files of a run on disk, with what vLLM's keys say of its load."""

from __future__ import annotations

from pathlib import Path

import msgspec

from headrace.bench import journal
from headrace.bench.load.experiment import Experiment, RunResult
from headrace.bench.report.files import RESULT, write_run
from headrace.bench.vllm_form import VllmForm
from headrace.bench.vllm_result import vllm_keys
from headrace.errors import HeadraceError


class SaveOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The folder and form in which results are saved."""

    folder: Path
    """Folder of the run, or of a sweep or search, whose runs get folders below it."""
    vllm_form: VllmForm = VllmForm()
    """Form of vLLM's keys in result.json."""
    result_filename: str | None = None
    """Name of a copy of result.json beside it."""


def save_run(done: RunResult, experiment: Experiment, how: SaveOptions) -> None:
    """The files of one run but its page; what was kept of it while it went on is gone then.

    Raises HeadraceError where one cannot be written.
    """
    options, folder = done.options, how.folder
    try:
        write_run(
            folder,
            done.run,
            done.summary,
            slo=experiment.slo,
            definition=experiment.definition,
            vllm_keys=vllm_keys(done.run.about, rate=options.rate, concurrency=options.concurrency),
            vllm_form=how.vllm_form,
        )
        if how.result_filename is not None:
            (folder / how.result_filename).write_bytes((folder / RESULT).read_bytes())
    except OSError as error:
        raise HeadraceError(f"--save {folder}: {error.strerror}") from error
    journal.discard(folder)
