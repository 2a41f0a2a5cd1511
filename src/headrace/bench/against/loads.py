"""The cases as runs of one server, with the same prompts for every server."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime

import msgspec

from headrace.bench.against.cases import AgainstCase
from headrace.bench.client.endpoints import Endpoint
from headrace.bench.client.limits import ClientLimits
from headrace.bench.load.experiment import Experiment, RunResult
from headrace.bench.load.live import Quiet
from headrace.bench.load.probe import check_model, choose_model, look
from headrace.bench.load.tokenization import ClientTokenization

_COMMAND = ("headrace", "bench", "against")
_METRICS_PATH = "/metrics"


async def with_model(endpoint: Endpoint, asked: str | None) -> Endpoint:
    """The endpoint with the name of its model: the one asked for, or the only one it lists.

    Raises UnreachableError where nobody answers, or not for this model.
    """
    found = await look(endpoint)
    flag = "--peer-model"
    named = msgspec.structs.replace(endpoint, model=choose_model(found, asked, flag))
    await check_model(named, found, flag)
    return named


class Loads:
    """Runs of one server: each case is an experiment, whose runs have prompts of their own.

    Of two servers with one tokenization and seed, the same run of the same case has the same
    prompts.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        tokenization: ClientTokenization,
        *,
        seed: int,
        request_timeout_s: float,
        now: Callable[[], datetime],
    ) -> None:
        """endpoint: with a model. now: for records."""
        self._endpoint = endpoint
        self._tokenization = tokenization
        self._seed = seed
        self._limits = ClientLimits(request_timeout_s=request_timeout_s)
        self._now = now
        self._experiments: dict[str, Experiment] = {}

    def __call__(self, case: AgainstCase) -> RunResult:
        """The next run of a case. Raises ConfigError where it cannot be made."""
        if case.name not in self._experiments:
            self._experiments[case.name] = Experiment(
                self._endpoint,
                case.load,
                case.prompts(_seed_of(case, self._seed)),
                self._tokenization,
                limits=self._limits,
                view=lambda _options: Quiet(),
                command=_COMMAND,
                now=self._now,
                metrics_path=_METRICS_PATH,
            )
        return self._experiments[case.name].run()


def _seed_of(case: AgainstCase, seed: int) -> int:
    """Of a case's prompts: no case may begin with another's, which caches would have."""
    return random.Random(f"{seed}:{case.name}").getrandbits(31)
