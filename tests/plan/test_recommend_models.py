"""Which models and checkpoints `recommend` takes, and what stands in their commands."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from headrace.catalog import Catalog
from headrace.plan.quantity import Quantity
from headrace.plan.recommendation import Recommendation, question_of, recommend
from headrace.plan.recommendation.breach import Breach
from headrace.plan.recommendation.checkpoints import checkpoint_of, hub_name, origin_of
from headrace.plan.recommendation.commands import commands_of
from headrace.plan.recommendation.models import model_breaches, model_marks
from headrace.plan.recommendation.option import Machines, Option
from headrace.plan.recommendation.ranking import alternatives
from headrace.plan.recommendation.size import Quality

DAY = dt.date(2026, 11, 22)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.load()


def asked(catalog: Catalog, task: str, **words: object) -> Recommendation:
    question = question_of(catalog, task, DAY, **words)  # type: ignore[arg-type]
    return recommend(catalog, question)


def test_untuned_models_answer_nobody(catalog: Catalog) -> None:
    row = catalog.models["nemotron-h-56b"]
    for task, rules in (("chat", ["rule-tuned"]), ("agent", ["rule-tuned"]), ("batch", [])):
        question = question_of(catalog, task, DAY, context_tokens=8192 + 512)  # type: ignore[arg-type]
        said = [one.rule for one in model_breaches(catalog, question, row)]
        assert [one for one in said if one == "rule-tuned"] == rules
    found = asked(
        catalog, "chat", models=("nemotron-h-56b",), hardware=("h200-sxm",), private=True, slo=""
    )
    assert found.left == 0


def test_names_are_of_tuned_models(catalog: Catalog) -> None:
    for id, name in (
        ("llama-3.1-8b", "meta-llama/Llama-3.1-8B-Instruct"),
        ("gemma-4-26b-a4b", "google/gemma-4-26B-A4B-it"),
        ("mixtral-8x7b", "mistralai/Mixtral-8x7B-Instruct-v0.1"),
        ("mimo-7b", "XiaomiMiMo/MiMo-7B-RL"),
        ("nemotron-h-56b", "nvidia/Nemotron-H-56B-Base-8K"),
    ):
        assert hub_name(catalog.models[id]) == name


def test_every_checkpoint_is_of_a_kind_of_the_catalog(catalog: Catalog) -> None:
    tuned = [row for row in catalog.models if row.checkpoints]
    assert len(tuned) > 40
    for row in tuned:
        assert all(catalog.quantizations.find(kind) for kind in row.checkpoints), row.id
        assert all(name.count("/") == 1 for name in row.checkpoints.values()), row.id


def test_where_weights_come_from(catalog: Catalog) -> None:
    kinds = catalog.quantizations
    qwen, deepseek = catalog.models["qwen3-8b"], catalog.models["deepseek-v3"]
    assert checkpoint_of(qwen, kinds["fp8"]) == "Qwen/Qwen3-8B-FP8"
    assert origin_of(qwen, kinds["int8"], "vllm") == "unseen"
    assert origin_of(catalog.models["llama-3.1-8b"], kinds["fp8"], "vllm") == "made on loading"
    assert origin_of(deepseek, kinds["fp8"], "vllm") == "published"
    assert origin_of(deepseek, kinds["bf16"], "vllm") == "none"
    assert origin_of(deepseek, kinds["awq"], "vllm") == "unseen"
    assert origin_of(deepseek, kinds["q4-k-m"], "llama.cpp") == "unseen"
    gemma = catalog.models["gemma-3-27b"]
    assert origin_of(gemma, kinds["q4-k-m"], "llama.cpp") == "converted"


def test_sixteen_bits_of_what_has_eight_are_ruled_out_and_others_marked(catalog: Catalog) -> None:
    found = asked(
        catalog, "batch", models=("deepseek-v3",), hardware=("h200-sxm",), private=True, slo="",
        quantizations=("bf16", "fp8", "awq"), rate=0.1,
    )  # fmt: skip
    by_rule = {one.rule: one.examples for one in found.ruled_out}
    assert any("is published in fp8, not in bf16" in one for one in by_rule["rule-checkpoint"])
    marks = {
        one.quantization: {mark.rule for mark in one.marks} for one in found.options if not one.api
    }
    assert "rule-checkpoint-unseen" in marks["awq"]
    assert "rule-checkpoint-unseen" not in marks["fp8"]


def test_code_of_a_checkpoint_is_trusted_only_where_needed(catalog: Catalog) -> None:
    machines = Machines(
        hardware="h200-sxm", hardware_name="H200", devices=8, tensor=8, pipeline=1, replicas=1,
        batch=16, capacity_requests_per_s=2, utilization=0.5, in_flight=3, memory_bytes=1,
        usable_bytes=2, usable_share=0.9,
    )  # fmt: skip
    option = Option(
        id="x", name="x", model="kimi-k2", model_name="Kimi K2", quality=Quality(parameters=1e11),
        paid="rented", usd_per_month=None, runtime="vllm", quantization="fp8", machines=machines,
    )  # fmt: skip
    question = question_of(catalog, "chat", DAY)
    [command] = commands_of(catalog, question, option)
    assert command.words[2] == "moonshotai/Kimi-K2-Instruct"
    assert "--trust-remote-code" in command.words and "its own code" in command.note
    [other] = commands_of(catalog, question, replace(option, model="deepseek-v3"))
    assert "--trust-remote-code" not in other.words


def test_age_and_other_work_mark(catalog: Catalog) -> None:
    question = question_of(catalog, "chat", DAY)
    old, images = catalog.models["mixtral-8x7b"], catalog.models["qwen2.5-vl-7b"]
    assert not list(model_breaches(catalog, question, old))
    assert [one.rule for one in model_marks(catalog, question, old)] == ["rule-age"]
    assert [one.rule for one in model_marks(catalog, question, images)] == ["rule-made-for"]
    named = replace(question, models=("mixtral-8x7b",))
    assert not list(model_marks(catalog, named, old))
    coder = catalog.models["qwen3-coder-480b-a35b"]
    assert not list(model_marks(catalog, question_of(catalog, "code", DAY), coder))


def test_tasks_have_a_least_size(catalog: Catalog) -> None:
    small = catalog.models["qwen3-0.6b"]

    def rules(task: str, **words: object) -> set[str]:
        question = question_of(catalog, task, DAY, **words)  # type: ignore[arg-type]
        return {one.rule for one in model_breaches(catalog, question, small)}

    for task in ("chat", "code", "rag", "agent"):
        assert rules(task) == {"rule-usual-size"}
        assert rules(task, least_parameters=0.0) == set()
    assert rules("agent", models=("qwen3-0.6b",)) == set() == rules("rag", edge=True)
    question = question_of(catalog, "agent", DAY)
    assert any("task-agent-least-size" in one for one in question.assumptions)
    # Who publishes no size is compared with nothing that nobody asked for.
    closed = next(row for row in catalog.models if row.total_parameters is None)
    said = {one.rule for one in model_breaches(catalog, question, closed)}
    assert "rule-usual-size" not in said and "rule-size-unstated" not in said


def test_llama_cpp_takes_as_many_sequences_as_its_row_says(catalog: Catalog) -> None:
    found = asked(
        catalog, "chat", models=("qwen3-0.6b",), hardware=("h200-sxm",), private=True, slo="",
        rate=20.0, quantizations=("q8-0", "bf16"),
    )  # fmt: skip
    batches: dict[str, list[int]] = {}
    for one in found.options:
        if one.machines is not None:
            batches.setdefault(one.runtime, []).append(one.machines.batch)
    assert catalog.runtimes["llama.cpp"].most_sequences == 256
    assert max(batches["llama.cpp"]) == 256 < max(batches["vllm"])
    assert any("not per runtime" in one for one in found.notes)


def test_ends_keep_options_whose_marks_are_about_something_else() -> None:
    def option(id: str, usd: float, size: float, *rules: str) -> Option:
        return Option(
            id=id, name=id, model=id, model_name=id, quality=Quality(parameters=size),
            paid="rented", usd_per_month=Quantity(f"{id}.m", "month", usd, "USD/month", "O5"),
            e2e_s=1.0, marks=tuple(Breach(rule=one, text="") for one in rules),
        )  # fmt: skip

    rented = option("rented", 500, 70e9, "rule-private-rented")
    clean = option("clean", 900, 27e9)
    unseen = option("unseen", 100, 900e9, "rule-checkpoint-unseen")
    old = option("old", 50, 7e9, "rule-age")
    three = alternatives([rented, clean, unseen, old])
    assert three.best is rented and three.cheapest is rented
    assert alternatives([unseen]).best is unseen
