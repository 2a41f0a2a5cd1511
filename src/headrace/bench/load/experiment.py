"""Runs of one command: one load, a sweep of them, or a search, against one endpoint.

Each run of several has prompts of its own, so that none finds those of another in a prefix cache.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from headrace.bench import journal
from headrace.bench.client.endpoints import Endpoint, build_request
from headrace.bench.client.limits import ClientLimits
from headrace.bench.cost import Prices
from headrace.bench.definitions import DEFINITIONS, Definition
from headrace.bench.load.about import about_run
from headrace.bench.load.client_run import ClientJob
from headrace.bench.load.live import View
from headrace.bench.load.load_options import LoadOptions, load_text, make_plan, with_trace
from headrace.bench.load.measure import measure
from headrace.bench.load.prompt_options import PromptOptions, RunPrompts, make_requests
from headrace.bench.load.runner import Ending
from headrace.bench.load.tokenization import ClientTokenization, counted
from headrace.bench.load.trace_progress import TraceProgress, no_progress
from headrace.bench.record import RunMetadata, RunRecord
from headrace.bench.slo import Slo
from headrace.bench.summary import Summary, summarize
from headrace.bench.vllm_form import DEFAULT_FORM, VllmForm
from headrace.bench.vllm_result import vllm_keys
from headrace.http.event_loop import run_in_loop

# Between the seeds of runs of one command; a prime, so that neighbouring seeds share no run.
_SEED_STEP = 1_000_003
_NO_PRICES = Prices()


class RunResult(NamedTuple):
    """One run and what it comes to. options: the load that it had."""

    run: RunRecord
    summary: Summary
    ending: Ending
    options: LoadOptions


class Experiment:
    """A series of runs; `view` is made again for each. count_outputs: with the tokenizer, after the
    run.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        options: LoadOptions,
        prompts: PromptOptions,
        tokenization: ClientTokenization,
        *,
        limits: ClientLimits,
        view: Callable[[LoadOptions], View],
        command: Sequence[str],
        now: Callable[[], datetime],
        count_outputs: bool = False,
        metrics_path: str | None = None,
        slo: Slo | None = None,
        definition: Definition = DEFINITIONS["headrace"],
        prices: Prices = _NO_PRICES,
        making: TraceProgress = no_progress,
    ) -> None:
        self.endpoint = endpoint
        self.slo = slo
        self.definition = definition
        self.prices = prices
        self._options = options
        self._prompts = prompts
        self._tokenization = tokenization
        self.limits = limits
        self._view = view
        self._making = making
        self._command = command
        self._now = now
        self._count_outputs = count_outputs
        self._metrics_path = metrics_path
        self._runs = 0

    def run(
        self,
        options: LoadOptions | None = None,
        keep: Path | None = None,
        vllm_form: VllmForm = DEFAULT_FORM,
    ) -> RunResult:
        """One load; other options than those of the command where a sweep or search asks.

        keep: folder of the run, where a journal of what came back stays until the run's files are
        written and `journal.discard` is called; vllm_form: of those files. Raises ConfigError where
        it cannot be made.
        """
        options = options or self._options
        number, self._runs = self._runs, self._runs + 1
        prompts = msgspec.structs.replace(
            self._prompts,
            seed=self._prompts.seed + number * _SEED_STEP,
            salt_seed=self._prompts.salt_seed + number * _SEED_STEP,
        )
        requests = make_requests(
            prompts,
            self._tokenization,
            self.endpoint.kind,
            requests=options.prompts_needed,
            warmup_requests=options.warmup_requests,
            trace_s=options.trace_s,
            making=self._making,
        )
        if prompts.trace is not None:
            options = with_trace(options, requests.times_ns, len(requests.conversations))
        # What the endpoint cannot take is found before anything is sent.
        for turns in (*requests.conversations, *requests.warmup):
            for item in turns:
                build_request(self.endpoint, item.prompt)
        about = self._about(options, requests, prompts.seed)
        keys = vllm_keys(about, rate=options.rate, concurrency=options.concurrency)
        prices = msgspec.to_builtins(self.prices)
        begun = journal.begun(about, self._slo_text, prices, keys, vllm_form)
        kept = None if keep is None else journal.begin(keep, begun)
        source = random.Random(f"{prompts.seed}:arrivals")
        job = ClientJob(
            endpoint=self.endpoint,
            plan=make_plan(options, source, requests.times_ns),
            conversations=tuple(requests.conversations),
            warmup=tuple(requests.warmup),
            limits=self.limits,
            journal=None if kept is None else str(kept),
        )
        measured = run_in_loop(
            measure(
                job,
                about=about,
                view=self._view(options),
                processes=options.processes,
                metrics_path=self._metrics_path,
            )
        )
        run = measured.run
        if self._count_outputs:
            records = counted(run.requests, self._tokenization, prompts=requests.exact)
            run = msgspec.structs.replace(run, requests=records)
        summary = summarize(run, definition=self.definition, slo=self.slo, prices=self.prices)
        return RunResult(run, summary, measured.ending, options)

    @property
    def _slo_text(self) -> str | None:
        return None if self.slo is None else self.slo.text

    def _about(self, options: LoadOptions, requests: RunPrompts, seed: int) -> RunMetadata:
        return about_run(
            self.endpoint,
            requests,
            command=self._command,
            load=load_text(options, trace=self._prompts.trace is not None),
            seed=seed,
            tokenizer=self._tokenization.name,
            processes=options.processes,
            definitions=self.definition.name,
            slo=self._slo_text,
            started=self._now(),
            open_loop=self._prompts.trace is not None or not options.is_closed,
        )
