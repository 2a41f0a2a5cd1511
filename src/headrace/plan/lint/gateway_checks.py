"""Gateways: retries that multiply, timeouts that provoke them, prices by length."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator

from headrace.plan.lint.finding import Check, Evidence, Found, Needs, Outcome
from headrace.plan.lint.gateway_setup import GatewaySetup
from headrace.plan.lint.setting import Setting
from headrace.plan.lint.subject import Subject
from headrace.plan.lint.traffic import lengths_of
from headrace.plan.run_file import percentile
from headrace.telemetry.readings import growth

_CONFIG_NEEDED = "a gateway's config (LiteLLM's YAML)"
_MOST_ATTEMPTS = 4
"""One and three more: beyond it a provider in trouble gets several times its load."""
_TIMEOUT_QUANTILE = 0.99
_DATED = re.compile(r"[-@]\d{8}.*$|-latest$|-preview.*$")
_VERSION = re.compile(r"(?<=-)(\d)-(\d)(?=$|-)")


def retry_storm(subject: Subject) -> Outcome:
    """How many times a request is sent at worst, and for how long."""
    gateway = subject.gateway
    if gateway is None:
        return Needs(_CONFIG_NEEDED)
    stated = [one for one in (gateway.retries, *_deployment_retries(gateway)) if one is not None]
    if not stated:
        return Needs("num_retries to be stated: the default differs between versions")
    retries = max(stated, key=lambda one: one.value)
    groups = {one.group for one in gateway.deployments}
    chain = max(groups, key=lambda group: len(_chain(gateway, group)))
    hops = len(_chain(gateway, chain))
    attempts = (1 + retries.value) * hops
    evidence = [retries.evidence("retries")]
    if hops > 1:
        evidence.append(
            Evidence("groups that a request goes through", " > ".join(_chain(gateway, chain)),
                     gateway.fallbacks_where),
        )  # fmt: skip
    evidence.append(Evidence("attempts of one request at worst", attempts, "computed"))
    timeout = _longest_timeout(gateway)
    if timeout is not None:
        evidence += [
            timeout.evidence("s"),
            Evidence("longest wait of a client", attempts * timeout.value, "computed", "s"),
        ]
    off = gateway.cooldowns_off
    if off is not None and off.value and retries.value:
        evidence.append(off.evidence())
        return (
            Found(
                "failed requests are sent again and no deployment is cooled down: the slower "
                "one is, the more load it gets",
                tuple(evidence),
                "router_settings.disable_cooldowns: false, with allowed_fails and cooldown_time",
                "error",
            ),
        )
    if attempts <= _MOST_ATTEMPTS:
        return ()
    fewer = max(0, _MOST_ATTEMPTS // hops - 1)
    return (
        Found(
            f"one request becomes up to {attempts} while providers have trouble",
            tuple(evidence),
            f"router_settings.num_retries: {fewer}, with retry_after and a cooldown_time; retry "
            "in one place only",
        ),
    )


def fallback_circle(subject: Subject) -> Outcome:
    """Fallbacks that lead back."""
    gateway = subject.gateway
    if gateway is None:
        return Needs(_CONFIG_NEEDED)
    for group, others in gateway.fallbacks.items():
        for other in others:
            if group == other or group in gateway.fallbacks.get(other, ()):
                return (
                    Found(
                        "a failed request falls back to where it came from",
                        (
                            Evidence(group, ", ".join(others), gateway.fallbacks_where),
                            Evidence(other, ", ".join(gateway.fallbacks.get(other, (other,))),
                                     gateway.fallbacks_where),
                        ),
                        f"fall back in one direction: take {group} out of the fallbacks of {other}",
                    ),
                )  # fmt: skip
    return ()


def timeout_retries(subject: Subject) -> Outcome:
    """A timeout below what answers take: each slow one is begun anew."""
    gateway, run = subject.gateway, subject.run
    if gateway is None:
        return Needs(_CONFIG_NEEDED)
    if run is None:
        return Needs("a run: how long answers take")
    timeout = _longest_timeout(gateway)
    if timeout is None:
        return Needs("router_settings.timeout, or litellm_params.timeout of each deployment")
    times = [one.e2e_s for one in run.completed if one.e2e_s is not None]
    if not times:
        return Needs("completed requests in the run")
    slow = percentile(times, _TIMEOUT_QUANTILE)
    late = sum(one > timeout.value for one in times)
    if slow <= timeout.value:
        return ()
    retried = gateway.retries is None or gateway.retries.value > 0
    return (
        Found(
            "slow answers are cut off" + (" and computed again from the start" if retried else ""),
            (
                timeout.evidence("s"),
                Evidence("E2E p99", round(slow, 2), f"{run.where}/requests.jsonl", "s"),
                Evidence("requests beyond the timeout", late, f"{run.where}/requests.jsonl"),
                *((gateway.retries.evidence("retries"),) if gateway.retries else ()),
            ),
            f"a timeout above {slow:.0f} s, or stream_timeout for the first token alone",
            "error" if retried else "warning",
        ),
    )


def eviction_retries(subject: Subject) -> Outcome:
    """Preemptions in the engine and requests sent again: work is done twice."""
    run, gateway = subject.run, subject.gateway
    if run is None:
        return Needs("a run with the server's /metrics")
    preempted = growth(run.readings, "preemptions")
    if preempted is None:
        return Needs("preemptions in the server's /metrics")
    timed_out = sum(one.failure == "timeout" for one in run.measured)
    retries = gateway.retries if gateway else None
    if not preempted or (not timed_out and not (retries and retries.value)):
        return ()
    where = f"{run.where}/metrics.jsonl"
    evidence = [
        Evidence("preemptions", preempted, where, "requests"),
        Evidence("timeouts", timed_out, f"{run.where}/requests.jsonl", "requests"),
    ]
    if retries is not None:
        evidence.append(retries.evidence("retries"))
    return (
        Found(
            "the engine evicts requests from its cache, and those that time out are sent "
            "again with their whole prefill",
            tuple(evidence),
            "fewer sequences (--max-num-seqs), a --request-timeout in the engine below the "
            "gateway's, and no retry after a timeout",
        ),
    )


def no_bound(subject: Subject) -> Outcome:
    """Nothing limits how much is sent at once."""
    gateway = subject.gateway
    if gateway is None:
        return Needs(_CONFIG_NEEDED)
    free = [one for one in gateway.deployments if one.rpm is None and one.parallel is None]
    if gateway.parallel is not None or not free or not gateway.deployments:
        return ()
    return (
        Found(
            "requests are forwarded without a limit on how many run at once",
            (
                Evidence("deployments without rpm and max_parallel_requests", len(free),
                         free[0].where),
                Evidence("of deployments", len(gateway.deployments), gateway.where),
            ),
            "litellm_params.max_parallel_requests for each deployment, or "
            "general_settings.global_max_parallel_requests",
            "info",
        ),
    )  # fmt: skip


def context_tier(subject: Subject) -> Outcome:
    """Prompts beyond a length from which the whole request has other prices."""
    gateway, run = subject.gateway, subject.run
    names = [(one.group, one.provider, one.model, one.where) for one in
             (gateway.deployments if gateway else ())]  # fmt: skip
    if not names and run is not None and isinstance(run.about.get("model"), str):
        names = [("", "", run.about["model"], f"{run.where}/result.json")]
    if not names:
        return Needs("a gateway's config, or a run of an API")
    day = _day(subject)
    tiered = [
        (name, row)
        for name in names
        for row in subject.catalog.prices
        if row.in_use and row.boundaries and row.holds_on(day)
        and row.model in _spellings(subject, name[2])
    ]  # fmt: skip
    if not tiered:
        return ()
    lengths = lengths_of(subject)
    if lengths is None:
        return Needs("lengths of prompts: add a run, or --prompts with --tokenizer")
    found = []
    for (_, _, _, where), row in tiered:
        boundary = row.boundaries[0]
        above = [one for one in lengths.prompts if one > boundary]
        if not above:
            continue
        below_rate, above_rate = row.at(boundary).input, row.at(boundary + 1).input
        extra = sum(above) * ((above_rate or 0) - (below_rate or 0)) / 1e6
        found.append(
            Found(
                f"{len(above)} of {len(lengths.prompts)} prompts are beyond the length from which "
                f"{row.model} costs more, for the whole request",
                (
                    Evidence("boundary", boundary, f"catalog: {row.id}", "tokens"),
                    Evidence("price of input below", below_rate or "not stated",
                             f"catalog: {row.id}", "USD/1M tokens"),
                    Evidence("price of input above", above_rate or "not stated",
                             f"catalog: {row.id}", "USD/1M tokens"),
                    Evidence("longest prompt", max(above), lengths.where, "tokens"),
                    Evidence("input of these prompts costs more by", round(extra, 4), "computed",
                             "USD"),
                    Evidence("requested model", row.model, where),
                ),
                f"keep prompts at {boundary:,} tokens or below, or route longer ones to a model "
                "with one price",
            )
        )  # fmt: skip
    return tuple(found)


def _day(subject: Subject) -> dt.date:
    """When the run was made; of a config, the newest day that the catalog knows."""
    started = subject.run.about.get("started") if subject.run else None
    if isinstance(started, str):
        try:
            return dt.datetime.fromisoformat(started).date()
        except ValueError:
            pass
    return max((row.effective_from for row in subject.catalog.prices), default=dt.date.min)


def _spellings(subject: Subject, model: str) -> set[str]:
    """As it is written, without a date behind it, and with points where providers write dashes."""
    plain = _DATED.sub("", model.rpartition("anthropic.")[2] or model)
    names = {model, plain, _VERSION.sub(r"\1.\2", plain)}
    return names | {row.id for name in names if (row := subject.catalog.models.find(name))}


def _deployment_retries(gateway: GatewaySetup) -> Iterator[Setting[int] | None]:
    return (one.retries for one in gateway.deployments)


def _longest_timeout(gateway: GatewaySetup) -> Setting[float] | None:
    found = [one for one in (gateway.timeout_s, *(d.timeout_s for d in gateway.deployments)) if one]
    return max(found, key=lambda one: one.value, default=None)


def _chain(gateway: GatewaySetup, group: str) -> tuple[str, ...]:
    """The groups that a request may visit, each once."""
    visited: list[str] = []
    ahead = [group]
    while ahead:
        one = ahead.pop(0)
        if one not in visited:
            visited.append(one)
            ahead += gateway.fallbacks.get(one, gateway.fallbacks.get("*", ()))
    return tuple(visited)


CHECKS = (
    Check(
        "L-retry-storm", "retries that multiply", "warning", ("gateway",), "num_retries stated",
        "router_settings.num_retries, allowed_fails, cooldown_time", ("cr-484",), retry_storm,
    ),
    Check(
        "L-fallback-circle", "fallbacks in a circle", "warning", ("gateway",), "",
        "fallbacks in one direction", ("cr-484",), fallback_circle,
    ),
    Check(
        "L-timeout", "timeout below what answers take", "error", ("gateway", "run"),
        "a timeout in the config and a run", "router_settings.timeout, stream_timeout",
        ("cr-484",), timeout_retries,
    ),
    Check(
        "L-evict", "eviction and retries", "warning", ("run", "gateway"),
        "preemptions in /metrics of the run", "--max-num-seqs, --request-timeout",
        ("cr-484", "preemption"), eviction_retries,
    ),
    Check(
        "L-gateway-bound", "gateway without bound", "info", ("gateway",), "",
        "max_parallel_requests, rpm", ("qg-575", "admission-control"), no_bound,
    ),
    Check(
        "L-context-tier", "context-tier price crossed", "warning", ("gateway", "run", "prompts"),
        "a price with tiers in the catalog; lengths of prompts",
        "shorter prompts, another model for long ones",
        ("claude-sonnet-4.5.anthropic", "gemini-2.5-pro.google"), context_tier,
    ),
)  # fmt: skip
