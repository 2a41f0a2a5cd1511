"""The page of one plan, or of several of the same model: one file that needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from headrace.catalog import Catalog
from headrace.page.markup import Markup, tag
from headrace.page.page import page, section, sheet_markup
from headrace.plan.cost.cost_plan import CostPlan
from headrace.plan.explanation import Explainer
from headrace.plan.memory.fit import Fit
from headrace.plan.page.cascade_part import cascade_part
from headrace.plan.page.cost_part import cost_part
from headrace.plan.page.figure_details import STYLE, disputes_sheet, figure_details
from headrace.plan.page.fit_part import fit_part
from headrace.plan.page.part import Block, PlanPart
from headrace.plan.page.recommendation_part import recommendation_part
from headrace.plan.page.simulation_part import simulation_part
from headrace.plan.page.speed_part import speed_part
from headrace.plan.saved_plan import PlanMetadata, SavedFigure, SavedPlan
from headrace.plan.speed.speed_plan import SpeedPlan

if TYPE_CHECKING:
    from headrace.plan.cost.cascade_plan import CascadePlan
    from headrace.plan.recommendation.recommendation import Recommendation
    from headrace.plan.simulation.plan import SimulationPlan


def plan_page(
    catalog: Catalog,
    about: PlanMetadata,
    *,
    fit: Fit | None = None,
    speed: SpeedPlan | None = None,
    cost: CostPlan | None = None,
    cascade: CascadePlan | None = None,
    recommendation: Recommendation | None = None,
    simulation: SimulationPlan | None = None,
    refused: Sequence[str] = (),
) -> str:
    """The whole document. refused: why a plan that was asked for is not on it."""
    parts = [
        *([fit_part(fit)] if fit is not None else []),
        *([speed_part(speed)] if speed is not None else []),
        *([cost_part(cost)] if cost is not None else []),
        *([cascade_part(cascade)] if cascade is not None else []),
        *([recommendation_part(recommendation)] if recommendation is not None else []),
        *([simulation_part(simulation)] if simulation is not None else []),
    ]
    return document(catalog, about, parts, refused)


def document(
    catalog: Catalog, about: PlanMetadata, parts: Sequence[PlanPart], refused: Sequence[str] = ()
) -> str:
    """A page of parts: each with verdicts, figures, plots and tables, then where they come from."""
    quantities = {one.id: one for part in parts for one in part.quantities}
    kept = SavedPlan(
        tuple(msgspec.convert(quantity.as_dict(), SavedFigure) for quantity in quantities.values()),
        about=about,
    )
    details, disputes = figure_details(kept.quantities, Explainer(kept, catalog))
    title = f"headrace plan {about.plan}"
    made = [
        tag("h1", title),
        tag("p", parts[0].subject if parts else "", class_="sub"),
        tag("p", about.command, class_="sub command"),
        tag("p", f"headrace {about.version}, {about.made_at[:16].replace('T', ' ')} UTC",
            class_="note"),
        *[tag("div", tag("p", told), class_="verdict bad") for told in refused],
    ]  # fmt: skip
    for part in parts:
        made += _part(part, alone=len(parts) == 1)
    made.append(section("Assumptions", _assumptions(parts)))
    made.append(
        section(
            "Disputed facts",
            [sheet_markup(disputes_sheet(disputes))] if disputes else [],
        )
    )
    made.append(
        section(
            "Where each figure comes from",
            [
                tag("p", "Open a figure for its formula and inputs; an input that is a figure has "
                    "its own entry. In the terminal: headrace plan explain ID.", class_="note"),
                *details,
            ],
        )
    )  # fmt: skip
    return page(title, made, style=STYLE)


def _part(part: PlanPart, *, alone: bool) -> list[Markup]:
    subject = [] if alone else [tag("p", part.subject, class_="sub")]
    kinds = {True: "verdict good", False: "verdict bad", None: "verdict"}
    verdicts = [
        tag("div", tag("p", told[:1].upper() + told[1:]), class_=kinds[good])
        for told, good in part.verdicts
    ]
    tiles = [
        tag("div", tag("b", value), tag("span", name), class_="tile") for name, value in part.tiles
    ]
    plots = [tag("div", *[one.markup for one in part.plots], class_="plots")] if part.plots else []
    return [
        section(
            part.title,
            [
                *subject,
                *verdicts,
                tag("div", *tiles, class_="tiles"),
                *plots,
                *[
                    _block(one) if isinstance(one, Block) else sheet_markup(one)
                    for one in part.sheets
                ],
            ],
        )
    ]


def _block(one: Block) -> Markup:
    note = [tag("p", one.note, class_="note")] if one.note else []
    return tag("div", tag("h3", one.title), tag("pre", one.text), *note, class_="sheet")


def _assumptions(parts: Sequence[PlanPart]) -> list[Markup]:
    said = dict.fromkeys(one for part in parts for one in part.assumptions)
    return [tag("ul", *[tag("li", one) for one in said])] if said else []
