"""Figures explained down to rows of the catalog."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.catalog import Catalog
from headrace.errors import ConfigError
from headrace.plan import (
    ApiChoice,
    CostTerms,
    Draft,
    Load,
    MemoryLoad,
    ReplicaChoice,
    Storage,
    explain,
    kv_kind,
    place_of,
    plan_cost,
    plan_fit,
    plan_speed,
    replica_of,
    shape_of_catalog,
)
from headrace.plan.explanation import Derivation, Explainer, lost_figures
from headrace.plan.saved_plan import (
    PlanMetadata,
    SavedPlan,
    read_plan,
    save_plan,
    saved_plan_path,
)

CATALOG = Catalog.load()


def kept(plan: dict[str, Any]) -> SavedPlan:
    return msgspec.json.decode(msgspec.json.encode(plan), type=SavedPlan)


def fit_dict(hardware: str = "h100", **load: int) -> dict[str, Any]:
    kv = kv_kind("F16", CATALOG)
    shape = shape_of_catalog(CATALOG.models["llama-3.1-70b"])
    storage = Storage(CATALOG.quantizations["q4-k-m"], kv, kv)
    place = place_of(CATALOG, hardware, load.pop("count", 1))
    return plan_fit(CATALOG, shape, place, storage, MemoryLoad(8192, **load)).as_dict()


def speed_and_cost() -> tuple[dict[str, Any], dict[str, Any]]:
    kv = kv_kind("F16", CATALOG)
    shape = shape_of_catalog(CATALOG.models["llama-3.3-70b"])
    storage = Storage(CATALOG.quantizations["fp8"], kv, kv)
    choice = ReplicaChoice(hardware="h100", count=4)
    replica = replica_of(CATALOG, shape, storage, choice, None)
    load = Load(prompt_tokens=1024, output_tokens=256, batch=8)
    draft = Draft(name="drafts", acceptance=0.7, tokens=4)
    speed = plan_speed(replica, load, batches=[1, 8], contexts=[1000, 4000], draft=draft)
    terms = CostTerms(price_usd=28_000)
    apis = ApiChoice(model="llama-3.3-70b", on=date(2026, 11, 22))
    cost = plan_cost(CATALOG, shape.name, replica, load, terms, apis, volumes=[1e9, 1e11])
    return speed.as_dict(), cost.as_dict()


def leaves(of: Derivation) -> list[Any]:
    found = []
    for reason in of.reasons:
        found += leaves(reason.derivation) if reason.derivation else [reason]
    return found


def test_every_figure_of_every_plan_goes_down_to_what_is_no_figure() -> None:
    plans = [fit_dict(), fit_dict("rtx-4090", users=2, count=2), *speed_and_cost()]
    for plan in map(kept, plans):
        assert len(plan.figures) == len(plan.quantities), "an id stands twice"
        assert lost_figures(plan.quantities) == []
        explainer = Explainer(plan, CATALOG)
        for one in plan.quantities:
            assert one.inputs, one.id
            assert not any(reason.lost for reason in leaves(explainer.explain(one.id)))


def test_what_does_not_fit_has_figures_of_the_gap_and_of_each_change() -> None:
    plan = fit_dict("rtx-4090", users=2, count=2)
    figures = kept(plan).figures
    needed, usable = figures["needed"].value, figures["usable"].value
    assert needed is not None and usable is not None
    assert figures["missing"].value == pytest.approx(needed - usable, abs=1)
    for change in plan["changes"]:
        id = f"saving.{'-'.join(change['option'].replace('--', '').split()).lower()}"
        assert figures[id].value == pytest.approx(change["saving_bytes"], abs=1)
    assert figures["weights-per-device"].inputs[0].source == "figure weights"
    assert "missing" not in kept(fit_dict()).figures


def test_lines_of_the_tables_are_figures() -> None:
    speed, cost = speed_and_cost()
    figures = kept(speed).figures
    for one in speed["points"]:
        id = f"speed.c{one['context_tokens']}.b{one['batch']}"
        assert figures[f"{id}.tpot"].value == pytest.approx(one["tpot_s"])
        assert figures[f"{id}.user"].value == pytest.approx(one["user_tokens_per_s"])
        assert figures[f"{id}.all"].value == pytest.approx(one["system_tokens_per_s"])
    assert figures["speed.ridge"].value == pytest.approx(speed["ridge_operations_per_byte"])
    assert figures["speed.speculation"].value == pytest.approx(speed["speculation"]["speedup"])
    figures = kept(cost).figures
    for way in cost["ways"]:
        assert figures[f"{way['id']}.request"].value == pytest.approx(way["usd_per_request"])
    for crossing in cost["break_even"]:
        for point in crossing["curve"]:
            id = f"{crossing['hardware']}.at.{point['tokens_per_month']:.0f}"
            assert figures[id].value == pytest.approx(point["fleet_usd_per_month"])


def test_the_ridge_is_lowest_with_much_bandwidth_and_little_compute() -> None:
    ridge = kept(speed_and_cost()[0]).figures["speed.ridge"]
    assert ridge.low is not None and ridge.value is not None and ridge.high is not None
    assert ridge.low < ridge.value < ridge.high
    assert ridge.high / ridge.low == pytest.approx(0.6 / 0.6 / (0.45 / 0.8))


def test_inputs_name_the_row_the_source_and_the_dispute() -> None:
    found = explain(kept(speed_and_cost()[1]), "cost.own", CATALOG)
    by_name = {one.input.name: one for one in leaves(found)}
    peak = by_name["h100-sxm.dense_fp8_flops"]
    assert peak.fact.kind == "hardware" and peak.fact.field == "dense_fp8_flops"
    assert "NVIDIA data sheets" in peak.fact.source and peak.fact.confidence == "high"
    (dispute,) = peak.disputes
    assert dispute.id == "C32" and dispute.statements and dispute.used and dispute.why
    assert dispute in found.disputes
    share = by_name["bandwidth efficiency"]
    assert (share.fact.kind, share.fact.row) == ("constant", "mbu-decode-server")
    assert by_name["active parameters"].fact.row == "llama-3.3-70b"
    assert by_name["price of a device"].fact is None
    as_dict = found.as_dict()
    assert as_dict["id"] == "cost.own" and as_dict["inputs"][0]["source"] == "--price"
    assert by_name["devices"].input.value == 4


def test_a_figure_met_twice_is_expanded_once() -> None:
    found = explain(kept(fit_dict()), "most-users", CATALOG)
    repeated = [one for one in leaves(found) if one.repeated]
    assert all(one.derivation is None for one in repeated)
    ids: list[str] = []

    def walk(of: Derivation) -> None:
        ids.append(of.figure.id)
        for reason in of.reasons:
            if reason.derivation:
                walk(reason.derivation)

    walk(found)
    assert len(ids) == len(set(ids)) and "free-for-kv" in ids


def test_a_fact_that_has_changed_says_so() -> None:
    plan = fit_dict()
    usable = next(one for one in plan["quantities"] if one["id"] == "usable")
    usable["inputs"][0]["as_of"] = "2020-01-01"
    first = explain(kept(plan), "usable", CATALOG).reasons[0]
    assert first.fact is not None and "byte (20" in first.fact.now


def test_an_unknown_id_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'most-user' is not in this plan.*'most-users'"):
        explain(kept(fit_dict()), "most-user", CATALOG)


def figure_dict(id: str, *sources: str) -> dict[str, Any]:
    inputs = [{"name": "x", "value": 1, "source": source} for source in sources]
    return {"id": id, "name": id, "value": 1, "unit": "", "low": 1, "high": 1,
            "formula_id": "M1", "formula": "", "inputs": inputs}  # fmt: skip


def test_files_of_strangers_do_not_run_away() -> None:
    circle = kept({"quantities": [figure_dict("a", "figure b"), figure_dict("b", "figure a")]})
    (first,) = explain(circle, "a", CATALOG).reasons
    assert first.derivation is not None and first.derivation.reasons[0].repeated
    lost = kept({"quantities": [figure_dict("a", "figure none")]})
    assert explain(lost, "a", CATALOG).reasons[0].lost and lost_figures(lost.quantities) == ["none"]
    deep = kept({"quantities": [figure_dict(f"f{at}", f"figure f{at + 1}") for at in range(99)]})
    with pytest.raises(ConfigError, match="deeper than 64"):
        explain(deep, "f0", CATALOG)
    gone = kept({"quantities": [figure_dict("a", "x")]})
    assert explain(gone, "a", CATALOG).reasons[0].fact is None


def test_the_last_plan_is_kept_and_read_again(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    about = PlanMetadata(plan="fit", command="headrace plan fit x", made_at="2026-01-02T03:04:05")
    path = save_plan(fit_dict(), about, environ)
    assert path == saved_plan_path(environ) == tmp_path / "headrace" / "plan.json"
    found = read_plan(None, environ)
    assert found.about == about and "needed" in found.figures
    assert found.title == "plan fit of Llama 3.1 70B on NVIDIA H100 SXM 80 GB"
    assert read_plan(path, {}).quantities == found.quantities
    home = saved_plan_path({"HOME": "/h", "XDG_STATE_HOME": "relative"})
    assert home == Path("/h/.local/state/headrace/plan.json")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b'{"quantities": 3}',
        b'{"quantities": [{}]}',
        b'{"quantities": ["\xff"]}',
        b'{"quantities": [], "x": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
)
def test_what_is_no_plan_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "plan.json"
    with pytest.raises(ConfigError, match="there is no plan in"):
        read_plan(path, {})
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="is not a plan as --json prints it"):
        read_plan(path, {})
    with pytest.raises(ConfigError, match="make a plan first"):
        read_plan(None, {"XDG_STATE_HOME": str(tmp_path)})
    with pytest.raises(ConfigError, match="cannot be read"):
        read_plan(tmp_path, {})


def test_a_number_that_no_figure_can_be_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    figure = {"id": "a", "name": "a", "unit": "", "formula_id": "f", "formula": "f"}
    figure |= {"value": 10**400, "low": 0, "high": 0}
    path.write_text(json.dumps({"quantities": [figure]}))
    with pytest.raises(ConfigError, match=r"has a number above 1e\+300 in figure 'a': make one"):
        read_plan(path, {})
