"""Options by API: what the token costs, what is known of the speed, and who may be asked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from headrace.catalog import Catalog
from headrace.catalog.fact import Confidence
from headrace.catalog.rows import Measurement, Model, Price
from headrace.errors import ConfigError
from headrace.plan.model.renamed import figure_input
from headrace.plan.quantity import Input, Quantity
from headrace.plan.recommendation.breach import Breach, RuledOut
from headrace.plan.recommendation.models import model_breaches, model_marks
from headrace.plan.recommendation.money import month_of_api
from headrace.plan.recommendation.option import Option
from headrace.plan.recommendation.question import Limit, Metric, Question
from headrace.plan.recommendation.size import quality_of


def api_options(catalog: Catalog, question: Question) -> tuple[list[Option], list[RuledOut]]:
    """Every price that holds on the day, as an option or as ruled out."""
    options, out = [], []
    wanted = {catalog.model_id(name) for name in question.models}
    for price in catalog.prices:
        row = catalog.models.find(price.model)
        if not (price.in_use and price.holds_on(question.on)) or row is None:
            continue
        if wanted and row.id not in wanted:
            continue
        found = _option(catalog, question, price, row)
        if isinstance(found, Option):
            options.append(found)
        else:
            out.append(found)
    return options, out


def _option(catalog: Catalog, question: Question, price: Price, row: Model) -> Option | RuledOut:
    provider = catalog.providers.find(price.provider)
    seller = price.provider if provider is None else provider.name
    name = f"{row.name} by {seller}"
    id = f"recommend.{row.id}.api.{catalog.provider_id(price.provider)}"
    breaches = list(model_breaches(catalog, question, row))
    # Licences bind who runs the weights, and nobody sells answers of an untuned model.
    breaches = [one for one in breaches if one.rule not in ("rule-licence", "rule-tuned")]
    if question.private:
        breaches.append(Breach(rule="rule-private", text=f"prompts go to {seller}"))
    if question.edge:
        breaches.append(Breach(rule="rule-edge", text=f"runs at {seller}"))
    longest = price.context_tokens
    if longest is not None and question.context_tokens > longest:
        over = question.context_tokens - longest
        breaches.append(
            Breach(rule="rule-context", text=f"{seller} takes {longest:,} tokens, {over:,} fewer",
                   excess=over / longest, option=f"--context {longest}")
        )  # fmt: skip
    try:
        paid = month_of_api(id, seller, price, question)
    except ConfigError as error:
        told = str(error).partition(":")[0]
        return RuledOut(
            name=name, breaches=(*breaches, Breach(rule="rule-price", text=told)), model=row.id
        )
    month, budget = paid.month, question.budget_usd
    if budget is not None and month.value > budget:
        breaches.append(
            Breach(
                rule="rule-budget",
                text=f"${month.value:,.0f} a month, ${month.value - budget:,.0f} over "
                f"${budget:,.0f}",
                excess=month.value / budget - 1, option=f"--budget {int(month.value) + 1}",
            )
        )  # fmt: skip
    ttft, tpot = _speed(catalog, id, row, price.provider)
    e2e = _e2e(id, question, ttft, tpot)
    seen: dict[Metric, Quantity | None] = {"ttft": ttft, "tpot": tpot, "e2e": e2e}
    breaches += _too_slow(question, seen)
    if breaches:
        return RuledOut(name=name, breaches=tuple(breaches), model=row.id)
    marks = (*model_marks(catalog, question, row), *_unchecked(question, seen))
    return Option(
        id=id, name=name, model=row.id, model_name=row.name, quality=quality_of(row),
        paid="by token", usd_per_month=month, api=catalog.provider_id(price.provider), ttft=ttft,
        tpot=tpot, e2e=e2e, e2e_s=None if e2e is None else e2e.value, marks=marks,
        reasons=(
            f"${paid.request.value:.3g} a request of {question.prompt_tokens:,} and "
            f"{question.output_tokens:,} tokens" + (", by the batch API" if paid.batch else ""),
            "no machines to run, none idle",
        ),
        sources=(paid.request, paid.tokens),
    )  # fmt: skip


def _speed(
    catalog: Catalog, id: str, row: Model, provider: str
) -> tuple[Quantity | None, Quantity | None]:
    """What was measured of the model there under stated conditions; claims are not used."""
    for one in catalog.measurements:
        if one.model is None or one.provider is None or one.output_tokens_per_s is None:
            continue
        same = catalog.model_id(one.model) == row.id
        if not same or catalog.provider_id(one.provider) != catalog.provider_id(provider):
            continue
        ttft = _measured(one, id, "ttft_s")
        tpot = _measured(one, id, "output_tokens_per_s")
        if tpot is not None:
            return ttft, tpot
    return None, None


def _measured(one: Measurement, id: str, field: str) -> Quantity | None:
    span = getattr(one, field)
    fact = one.facts.get(field)
    if span is None or fact is None or span.middle is None:
        return None
    if fact.confidence in (Confidence.CLAIM, Confidence.LOW):
        return None
    low, value, high = span.low, span.middle, span.high
    name = "TTFT"
    if field != "ttft_s":
        name = "TPOT"
        low, value, high = 1 / high, 1 / value, 1 / low
    seen = Input(f"{one.id}.{field}", str(span), fact.unit, fact.source, "measured",
                 fact.as_of.isoformat(), fact.disputed_by, fact.note)  # fmt: skip
    return Quantity(
        f"{id}.{name.lower()}", f"{name} as published", value, "s", "O7", (seen,), low, high
    )


def _e2e(
    id: str, question: Question, ttft: Quantity | None, tpot: Quantity | None
) -> Quantity | None:
    """Of what was published; None where either is not."""
    if ttft is None or tpot is None:
        return None
    further = question.output_tokens - 1
    low, high = (ttft.band[end] + further * tpot.band[end] for end in (0, 1))
    return Quantity(
        f"{id}.e2e", "E2E from what was published", ttft.value + further * tpot.value, "s", "F3",
        (
            figure_input(ttft),
            figure_input(tpot),
            Input("output", question.output_tokens, "tokens", "--output", "given"),
        ),
        low, high,
    )  # fmt: skip


def _too_slow(question: Question, seen: Mapping[Metric, Quantity | None]) -> list[Breach]:
    """Limits that the published mean is above already; each option keeps the other limits."""
    missed: dict[Limit, Quantity] = {}
    for limit in question.slo:
        figure = seen[limit.metric]
        if figure is not None and figure.value > limit.seconds:
            missed[limit] = figure
    looser = ",".join(
        replace(one, seconds=math.ceil(missed[one].value * 1e3) / 1e3).text
        if one in missed else one.text
        for one in question.slo
    )  # fmt: skip
    return [
        Breach(
            rule=f"rule-{limit.metric}",
            text=f"{limit.metric.upper()} is {figure.value * 1e3:.4g} ms as published, "
            f"{(figure.value - limit.seconds) * 1e3:.4g} ms over {limit.text}",
            excess=figure.value / limit.seconds - 1,
            option=f"--slo '{looser}'",
        )
        for limit, figure in missed.items()
    ]


def _unchecked(question: Question, seen: Mapping[Metric, Quantity | None]) -> list[Breach]:
    """What nobody published, and percentiles, of which a published mean says nothing."""
    unknown = [one.text for one in question.slo if seen[one.metric] is None]
    of_tails = [
        one.text for one in question.slo
        if seen[one.metric] is not None and one.quantile is not None
    ]  # fmt: skip
    said = []
    if unknown:
        said.append(f"not checked, as they are not published: {', '.join(unknown)}")
    if of_tails:
        said.append(f"not checked, as only a mean is published: {', '.join(of_tails)}")
    return [Breach(rule="rule-api-speed", text="; ".join(said))] if said else []
