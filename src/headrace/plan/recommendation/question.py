"""What is asked: a task, its requests, limits on latency and money, and where it may run."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from headrace.catalog import Catalog
from headrace.errors import ConfigError, shown
from headrace.plan.machine.hardware_memory import constant
from headrace.plan.validation import above_zero, not_below

Task = Literal["chat", "code", "rag", "agent", "batch"]
TASKS: tuple[Task, ...] = get_args(Task)
Metric = Literal["ttft", "tpot", "e2e"]
METRICS: tuple[Metric, ...] = get_args(Metric)

# Of a task, the constants that say what people wait for where they do not say it themselves.
_USUAL_SLO: dict[str, tuple[tuple[Metric, str], ...]] = {
    "chat": (("ttft", "slo-chat-ttft"), ("tpot", "slo-chat-itl")),
}
_LIMIT = re.compile(
    r"(?P<metric>[a-z0-9]+):(?:(?:p(?P<percentile>\d{1,2}(?:\.\d+)?)|mean)<)?"
    r"(?P<value>\d+(?:\.\d+)?)(?P<unit>ms|s)?"
)


@dataclass(frozen=True, kw_only=True)
class Limit:
    """One limit on latency, in seconds. quantile: 0.95 of p95; None of the mean.

    source: "--slo", or the constant it is from.
    """

    metric: Metric
    seconds: float
    quantile: float | None = None
    source: str = "--slo"

    @property
    def text(self) -> str:
        """As it is written: `ttft:p95<500ms`."""
        of = "" if self.quantile is None else f"p{self.quantile * 100:g}<"
        return f"{self.metric}:{of}{self.seconds * 1e3:g}ms"


@dataclass(frozen=True, kw_only=True)
class Question:
    """The requirements of a recommendation. Rates are requests per second, tokens are of one
    request."""

    task: Task
    on: dt.date
    prompt_tokens: int
    output_tokens: int
    context_tokens: int
    """Maximum tokens of a request; at least prompt and output."""
    rate: float
    mean_rate: float
    """Over the month, what is paid by the token goes by; at most `rate`, which machines are counted
    for."""
    headroom: float
    """Share of its capacity that a replica is planned for."""
    slo: tuple[Limit, ...] = ()
    budget_usd: float | None = None
    """A month."""
    private: bool = False
    edge: bool = False
    hardware: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    """With `hardware`: names, none for all."""
    quantizations: tuple[str, ...] = ()
    least_parameters: float | None = None
    """Minimum of the proxy of quality, if given."""
    usual_least_parameters: float | None = None
    """Minimum that is assumed for the task if none is given."""
    least_bits: float | None = None
    any_licence: bool = False
    cached_prompt_share: float = 0.0
    max_devices: int = 64
    assumptions: tuple[str, ...] = field(default=())

    def limit(self, metric: Metric) -> Limit | None:
        """The limit on a metric, if there is one."""
        return next((one for one in self.slo if one.metric == metric), None)

    def without_limits(self) -> Question:
        """The same with no SLO and no budget."""
        return replace(self, slo=(), budget_usd=None)


def parse_slo(text: str) -> tuple[Limit, ...]:
    """Limits as `ttft:500,tpot:50` (ms, of the mean) or `ttft:p95<300ms,e2e:5s`.

    Raises ConfigError for what is no limit, and for a metric that is limited twice.
    """
    found: dict[str, Limit] = {}
    for word in filter(None, re.split(r"[,\s]+", text.strip())):
        parts = _LIMIT.fullmatch(word.lower())
        if parts is None or parts["metric"] not in METRICS:
            raise ConfigError(
                f"slo {shown(word)} is not a limit; write METRIC:MS as in ttft:500 or "
                f"ttft:p95<300ms, METRIC one of {', '.join(METRICS)}"
            )
        metric: Metric = next(one for one in METRICS if one == parts["metric"])
        seconds = float(parts["value"]) * (1.0 if parts["unit"] == "s" else 1e-3)
        above_zero(f"slo {metric}", seconds, "it is a time, as in ttft:500")
        if metric in found:
            raise ConfigError(f"slo {metric} is limited twice, by {text!r}; give it once")
        percentile = parts["percentile"]
        quantile = None if percentile is None else float(percentile) / 100
        if quantile is not None and not 0.5 <= quantile < 1:
            raise ConfigError(f"slo {shown(word)}: a percentile is from p50 to p99.9")
        found[metric] = Limit(metric=metric, seconds=seconds, quantile=quantile)
    return tuple(found.values())


def question_of(
    catalog: Catalog,
    task: Task,
    on: dt.date,
    *,
    slo: str | None = None,
    rate: float = 1.0,
    mean_rate: float | None = None,
    prompt_tokens: int | None = None,
    output_tokens: int | None = None,
    context_tokens: int | None = None,
    headroom: float | None = None,
    **rest: object,
) -> Question:
    """A question with what people leave out taken from the catalog, each said in `assumptions`.

    slo: as `parse_slo` reads it; "" for none; None for what is usual for the task. rest: other
    fields of Question. Raises ConfigError naming field, value and limit.
    """
    said: list[str] = []
    if prompt_tokens is None:
        prompt_tokens = _tokens(catalog, f"task-{task}-prompt", said)
    if output_tokens is None:
        output_tokens = _tokens(catalog, f"task-{task}-output", said)
    not_below("prompt", prompt_tokens, 1, "a request has at least one prompt token")
    not_below("output", output_tokens, 1, "a request has at least one output token")
    whole = prompt_tokens + output_tokens
    context_tokens = whole if context_tokens is None else context_tokens
    not_below("context", context_tokens, whole, "it holds prompt and output together")
    limits = parse_slo(slo) if slo is not None else _usual_slo(catalog, task, said)
    above_zero("rate", rate, "it is requests per second at the peak, such as 0.5")
    mean = rate if mean_rate is None else mean_rate
    if mean_rate is None and not (rest.get("private") or rest.get("edge")):
        said.append("the cost of APIs assumes --rate all month, as --mean-rate was not given")
    above_zero("mean_rate", mean, "it is requests per second over the whole month")
    if mean > rate:
        raise ConfigError(f"mean_rate is {mean:g}; it is at most the rate of {rate:g} requests/s")
    if headroom is None:
        span = catalog.rules["rule-headroom"].limits["utilization"]
        headroom = span.low or 0.7
        said.append(f"replicas are planned for {headroom:.0%} of their capacity (rule-headroom)")
    if not 0 < headroom <= 1:
        raise ConfigError(f"headroom is {headroom}; it is a share of capacity above 0, at most 1")
    question = Question(
        task=task, on=on, prompt_tokens=prompt_tokens, output_tokens=output_tokens,
        context_tokens=context_tokens, rate=rate, mean_rate=mean, headroom=headroom, slo=limits,
        assumptions=tuple(said), **rest,  # type: ignore[arg-type]
    )  # fmt: skip
    if question.budget_usd is not None:
        above_zero("budget", question.budget_usd, "it is US dollars per month")
    least = question.least_parameters
    if least is None:
        question = _with_usual_size(catalog, question)
    elif least == 0:
        question = replace(question, least_parameters=None)
    else:
        above_zero("min_quality", least, "it is a number of parameters, such as 8g; 0 for any")
    not_below("max_devices", question.max_devices, 1, "a model needs at least one device")
    if not 0 <= question.cached_prompt_share < 1:
        raise ConfigError(f"cached is {question.cached_prompt_share}; it is a share from 0 to 1")
    return question


def _with_usual_size(catalog: Catalog, question: Question) -> Question:
    """With the least size that is taken for the task; not where models or the edge are asked for.

    Those who name models mean them, and what fits at the edge may be smaller than one would wish.
    """
    if question.models or question.edge:
        return question
    id = f"task-{question.task}-least-size"
    least, _ = constant(catalog, id)
    said = (
        f"{catalog.constants[id].name}: {least / 1e9:g} B by the proxy ({id}), a choice of "
        "this project, not a measurement; --min-quality 0 accepts any",
    )
    return replace(
        question, usual_least_parameters=least, assumptions=(*question.assumptions, *said)
    )


def _tokens(catalog: Catalog, id: str, said: list[str]) -> int:
    value, _ = constant(catalog, id)
    said.append(f"{catalog.constants[id].name}: {value:,.0f} tokens ({id})")
    return round(value)


def _usual_slo(catalog: Catalog, task: Task, said: list[str]) -> tuple[Limit, ...]:
    found = []
    for metric, id in _USUAL_SLO.get(task, ()):
        row = catalog.constants[id]
        figure = row.figure
        if figure is None or figure.high is None:
            continue
        assert row.facts["figure"].unit == "ms"
        found.append(Limit(metric=metric, seconds=figure.high * 1e-3, source=id))
        said.append(f"{row.name}: {figure.high:g} ms ({id})")
    return tuple(found)
