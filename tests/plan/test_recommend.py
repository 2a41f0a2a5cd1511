"""`recommend`: what is left keeps every rule, what is not says by how much, commands can be run.

Looked at are few models and devices: one plan of all takes seconds.
"""

from __future__ import annotations

import datetime as dt
import json
import shlex
from pathlib import Path

import msgspec
import pytest
import yaml

from headrace.catalog import Catalog
from headrace.cli.serve import serve
from headrace.errors import CatalogError
from headrace.plan.calibration.stored import Found, calibrate
from headrace.plan.explanation import explain, lost_figures
from headrace.plan.recommendation import Recommendation, question_of, recommend
from headrace.plan.recommendation.commands import commands_of
from headrace.plan.recommendation.option import Machines, Option
from headrace.plan.recommendation.size import Quality
from headrace.plan.saved_plan import SavedPlan
from headrace.telemetry.machine import Machine, PeakRate, ReadBandwidth
from tests.plan import calibrations

DAY = dt.date(2026, 11, 22)
MODELS = ("qwen3-8b", "qwen3-32b", "gpt-oss-120b")
HARDWARE = ("h100-sxm", "rtx-4090")
# Of vLLM's and of llama-server's, as their documentation lists them.
VLLM = {
    "--quantization", "--tensor-parallel-size", "--pipeline-parallel-size", "--max-model-len",
    "--max-num-seqs", "--gpu-memory-utilization", "--enable-prefix-caching", "--served-model-name",
    "--trust-remote-code",
}  # fmt: skip
LLAMA = {"-hf", "-m", "-c", "-np", "-ngl", "--split-mode", "--port", "--alias"}
MACHINE = Machine(
    "cpu", 2, 1 << 33, "2026-01-02T03:04:05Z", [ReadBandwidth("avx2", 2, 10**9, 2e10)],
    [PeakRate("avx2", 2, "f32", 1e11), PeakRate("avx2", 2, "int8", 4e11)],
)  # fmt: skip


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.load()


def asked(catalog: Catalog, **words: object) -> Recommendation:
    given = {"models": MODELS, "hardware": HARDWARE, **words}
    question = question_of(catalog, "chat", DAY, **given)  # type: ignore[arg-type]
    return recommend(catalog, question)


@pytest.fixture(scope="module")
def found(catalog: Catalog) -> Recommendation:
    return asked(catalog, rate=5.0, budget_usd=20_000.0)


def test_what_is_left_keeps_the_rules(found: Recommendation) -> None:
    assert found.left > 5 and found.ranked[0].place == 1
    for one in found.ranked:
        option, machines = one.option, one.option.machines
        assert option.usd_per_month is not None and option.usd_per_month.value <= 20_000
        if machines is None:
            assert option.api
            continue
        assert option.ttft is not None and option.tpot is not None
        assert option.tpot.value <= 0.05
        [served] = [mark for mark in option.marks if mark.rule == "rule-ttft-served"]
        assert "not checked: ttft:500ms" in served.text and "at least" in option.ttft.name
        prefill = next(figure for figure in option.sources if figure.id.endswith(".speed.ttft"))
        assert prefill.name == "TTFT, prefill alone" and prefill.value <= 0.5
        low, high = option.ttft.band
        assert low < option.ttft.value < high
        assert machines.memory_bytes <= machines.usable_bytes
        planned = machines.capacity_requests_per_s * machines.replicas * 0.7
        assert planned >= 5 * (1 - 1e-9) and machines.utilization <= 0.7 * (1 + 1e-9)
        assert option.e2e is not None
        assert machines.in_flight == pytest.approx(5 * option.e2e.value)
    ids = [figure.id for figure in found.figures]
    assert len(set(ids)) == len(ids)


def test_the_three_ends(found: Recommendation) -> None:
    three = found.alternatives
    assert three.cheapest is not None and three.fastest is not None and three.best is not None
    months = [
        one.option.usd_per_month
        for one in found.ranked
        if {mark.rule for mark in one.option.marks} <= {"rule-ttft-served"}
    ]
    assert three.cheapest.usd_per_month is not None
    assert three.cheapest.usd_per_month.value <= min(one.value for one in months if one)
    assert three.best.model == "qwen3-32b"  # dense, above √(117 · 5) of gpt-oss
    assert three.fastest.e2e is not None and three.fastest.e2e.formula == "F3"


def test_trees_are_told(found: Recommendation) -> None:
    of_h100 = [
        one.option for one in found.ranked
        if one.option.machines is not None and one.option.machines.hardware == "h100-sxm"
    ]  # fmt: skip
    assert of_h100
    said = {advice.decision for option in of_h100 for advice in option.advice}
    assert {"quantization-by-hardware", "runtime-by-use", "stack-by-scale"} <= said


def test_what_is_ruled_out_says_by_how_much(found: Recommendation) -> None:
    by_rule = {one.rule: one for one in found.ruled_out}
    assert {"rule-memory", "rule-not-for", "rule-backend", "rule-native", "rule-format"} <= set(
        by_rule
    )
    assert "GB more than the" in by_rule["rule-memory"].examples[0]
    assert by_rule["rule-native"].examples[0].startswith("NVFP4 on")
    assert all(one.count >= len(one.examples) > 0 and one.says for one in by_rule.values())


def test_private_and_edge_rule_apis_out(catalog: Catalog) -> None:
    private = asked(catalog, private=True, hardware=("h100-sxm",), models=("qwen3-32b",))
    assert all(not one.option.api for one in private.ranked)
    assert any(mark.rule == "rule-private-rented" for mark in private.ranked[0].option.marks)
    assert {"rule-private"} <= {one.rule for one in private.ruled_out}
    edge = asked(catalog, edge=True, models=("qwen3-8b",), rate=0.1)
    assert [one.option.machines and one.option.machines.hardware for one in edge.ranked] == [
        "rtx-4090"
    ]
    assert "rule-edge" in {one.rule for one in edge.ruled_out}


@pytest.mark.long
def test_the_impossible_names_what_would_do(catalog: Catalog) -> None:
    nothing = asked(
        catalog, private=True, slo="tpot:2", models=("qwen3-32b",), hardware=("h100-sxm",)
    )
    assert nothing.left == 0 and nothing.alternatives.cheapest is None
    nearest = nothing.nearest[0]
    assert nearest.breaches[0].rule == "rule-tpot" and "over 2 ms" in nearest.breaches[0].text
    [slo] = [shlex.split(one)[1] for one in nearest.options]
    again = asked(catalog, private=True, slo=slo, models=("qwen3-32b",), hardware=("h100-sxm",))
    assert again.left > 0
    both = asked(
        catalog, private=True, slo="tpot:2,ttft:1", models=("qwen3-32b",), hardware=("h100-sxm",),
        budget_usd=500.0,
    ).nearest[0]  # fmt: skip
    assert {one.rule for one in both.breaches} == {"rule-tpot", "rule-ttft", "rule-budget"}
    slo, budget = both.options
    again = asked(
        catalog, private=True, slo=shlex.split(slo)[1], models=("qwen3-32b",),
        hardware=("h100-sxm",), budget_usd=float(budget.split()[1]),
    )  # fmt: skip
    assert again.left > 0
    poor = asked(catalog, budget_usd=1.0, models=("qwen3-32b",), hardware=("h100-sxm",))
    assert poor.left == 0 and poor.nearest[0].options[0].startswith("--budget ")
    assert "over $1" in poor.nearest[0].breaches[0].text


def test_rules_on_models(catalog: Catalog) -> None:
    question = question_of(
        catalog, "code", DAY, models=("codestral-22b", "qwen3-8b"), hardware=("rtx-4090",),
        context_tokens=200_000, least_parameters=9e9,
    )  # fmt: skip
    by_rule = {one.rule: one.examples for one in recommend(catalog, question).ruled_out}
    assert by_rule["rule-licence"] == ("Codestral 22B: licence MNPL-0.1",)
    assert any("made for 131,072 tokens, 68,928 fewer" in one for one in by_rule["rule-context"])
    assert "8.19 B by the proxy, below 9" in by_rule["rule-size"][0]


def test_unknown_names_are_told(catalog: Catalog) -> None:
    for words in ({"models": ("qwen3-9b",)}, {"hardware": ("h101",)}, {"quantizations": ("q9",)}):
        with pytest.raises(CatalogError, match="no "):
            asked(catalog, **words)


def hosted(
    runtime: str, kind: str, devices: int = 1, replicas: int = 1, hardware: str = "h100-sxm"
) -> Option:
    tensor = devices if runtime == "vllm" else 1
    machines = Machines(
        hardware=hardware, hardware_name=hardware, devices=devices, tensor=tensor,
        pipeline=devices // tensor, replicas=replicas, batch=16, capacity_requests_per_s=2,
        utilization=0.5, in_flight=3, memory_bytes=1, usable_bytes=2, usable_share=0.9,
    )  # fmt: skip
    return Option(
        id="x", name="x", model="qwen3-8b", model_name="Qwen3 8B",
        quality=Quality(parameters=8e9), paid="rented", usd_per_month=None, runtime=runtime,
        quantization=kind, machines=machines,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["bf16", "q8-0", "q5-k-m", "q4-k-m"])
def test_headrace_s_commands_are_headrace_s(catalog: Catalog, kind: str) -> None:
    question = question_of(catalog, "chat", DAY)
    [command] = commands_of(catalog, question, hosted("headrace", kind, hardware="this"))
    program, verb, *words = shlex.split(command.line)
    assert (program, verb, command.program) == ("headrace", "serve", "headrace")
    given = serve.make_context("serve", list(words)).params
    assert given["max_model_len"] == 1280 and given["max_num_seqs"] == 16
    label = "" if kind == "bf16" else f"-GGUF:{kind.upper().replace('-', '_')}"
    assert given["model"] == f"Qwen/Qwen3-8B{label}" and not command.note
    assert given["served_model_name"] == ("Qwen/Qwen3-8B",)  # of itself the folder's name


@pytest.mark.parametrize("kind", ["bf16", "fp8", "awq", "int8"])
def test_commands_of_vllm(catalog: Catalog, kind: str) -> None:
    question = question_of(catalog, "chat", DAY)
    command, gateway = commands_of(catalog, question, hosted("vllm", kind, 2, 3))
    words = shlex.split(command.line)
    assert words[:2] == ["vllm", "serve"]
    assert {word for word in words if word.startswith("-")} <= VLLM
    assert words[words.index("--tensor-parallel-size") + 1] == "2"
    assert words[words.index("--gpu-memory-utilization") + 1] == "0.9"
    suffix = {"bf16": "", "fp8": "-FP8", "awq": "-AWQ", "int8": None}[kind]
    assert words[2] == ("ORG/NAME-INT8" if suffix is None else f"Qwen/Qwen3-8B{suffix}")
    assert bool(command.note) == (suffix is None)
    served = words[words.index("--served-model-name") + 1] if suffix != "" else words[2]
    config = yaml.safe_load(gateway.text)
    assert gateway.program == "LiteLLM" and len(config["model_list"]) == 3
    assert {one["model_name"] for one in config["model_list"]} == {served} == {"Qwen/Qwen3-8B"}
    assert {one["litellm_params"]["model"] for one in config["model_list"]} == {f"openai/{served}"}
    assert config["router_settings"]["routing_strategy"] == "least-busy"


def test_commands_of_llama_cpp(catalog: Catalog) -> None:
    question = question_of(catalog, "chat", DAY)
    [command] = commands_of(catalog, question, hosted("llama.cpp", "q4-k-m", 2))
    words = shlex.split(command.line)
    assert words[0] == "llama-server"
    assert {word for word in words if word.startswith("-")} <= LLAMA
    assert words[words.index("-c") + 1] == str(1280 * 16) and "--split-mode" in words
    assert words[words.index("-hf") + 1] == "Qwen/Qwen3-8B-GGUF:Q4_K_M"
    assert words[words.index("--alias") + 1] == "Qwen/Qwen3-8B"
    [this] = commands_of(catalog, question, hosted("llama.cpp", "q4-k-m", hardware="this"))
    assert "-ngl" not in this.words


def test_what_a_client_of_an_api_needs(found: Recommendation, catalog: Catalog) -> None:
    apis = [one for one in found.commands if ".api." in one]
    assert apis
    for id in apis:
        command, _ = found.commands[id]
        assert command.text.startswith("base_url=")
    question = question_of(catalog, "chat", DAY)
    option = Option(
        id="x", name="x", model="gpt-oss-120b", model_name="gpt-oss 120B",
        quality=Quality(parameters=None), paid="by token", usd_per_month=None, api="groq",
    )  # fmt: skip
    command, gateway = commands_of(catalog, question, option)
    [model] = yaml.safe_load(gateway.text)["model_list"]
    assert model == {
        "model_name": "openai/gpt-oss-120b",
        "litellm_params": {
            "model": "openai/openai/gpt-oss-120b", "api_base": "https://api.groq.com/openai/v1",
            "api_key": "os.environ/GROQ_API_KEY",
        },
    }  # fmt: skip
    assert command.text == "base_url=https://api.groq.com/openai/v1\nmodel=openai/gpt-oss-120b"


def test_this_machine_where_it_was_measured(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = question_of(
        catalog, "chat", DAY, models=("qwen3-0.6b",), hardware=("this",), private=True, slo="",
        rate=0.01,
    )  # fmt: skip
    unmeasured = recommend(catalog, question)
    assert unmeasured.left == 0
    told = {one.rule: one.examples[0] for one in unmeasured.ruled_out}
    assert "headrace bench machine" in told["rule-hardware-known"]
    memory = "headrace.plan.machine.hardware_memory.this_machine"
    monkeypatch.setattr(memory, lambda: ("cpu", 2, 1 << 33))
    found = recommend(catalog, question, machine=MACHINE)
    first = found.ranked[0].option
    assert first.machines is not None and first.machines.hardware == "this"
    assert first.usd_per_month is not None and first.usd_per_month.value == 0
    assert first.paid == "there already" and first.runtime in ("headrace", "llama.cpp")
    assert found.commands[first.id][0].words[0] in ("headrace", "llama-server")


def test_progress_is_told_by_model(catalog: Catalog) -> None:
    question = question_of(catalog, "chat", DAY, models=("qwen3-32b", "qwen3-8b"),
                           hardware=("h100-sxm",))  # fmt: skip
    seen: list[tuple[int, int]] = []
    recommend(catalog, question, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]


def test_every_figure_is_explained_down_to_the_catalog(
    catalog: Catalog, found: Recommendation
) -> None:
    kept = msgspec.convert(json.loads(json.dumps(found.as_dict())), SavedPlan, strict=False)
    ids = [one.id for one in kept.quantities]
    assert len(set(ids)) == len(ids) and lost_figures(kept.quantities) == []
    for one in kept.quantities:
        explain(kept, one.id, catalog)
    first = found.ranked[0].option
    assert first.machines is not None
    figures = kept.figures
    for name in ("ttft", "tpot", "e2e", "month", "capacity", "replicas", "in-flight", "size",
                 "weights", "needed", "usable", "speed.ttft"):  # fmt: skip
        assert f"{first.id}.{name}" in figures
    assert figures[f"{first.id}.replicas"].value == first.machines.replicas
    assert figures[f"{first.id}.needed"].value == pytest.approx(first.machines.memory_bytes)
    whole = json.dumps(explain(kept, f"{first.id}.e2e", catalog).as_dict())
    assert ".bandwidth_bytes_per_s" in whole and ".bits_per_weight" in whole
    month = json.dumps(explain(kept, f"{first.id}.month", catalog).as_dict())
    assert '"formula_id": "O1"' in month and "price_usd_per_hour" in month


def test_a_month_by_token_is_explained_down_to_its_price(catalog: Catalog) -> None:
    found = asked(catalog, hardware=("rtx-4090",), models=("qwen3-32b",), rate=0.1)
    kept = msgspec.convert(json.loads(json.dumps(found.as_dict())), SavedPlan, strict=False)
    sold = next(one for one in found.told if one.api)
    told = json.dumps(explain(kept, f"{sold.id}.month", catalog).as_dict())
    assert "input_usd_per_million_tokens" in told and '"kind": "price"' in told


def test_this_machine_is_planned_with_its_calibration(catalog: Catalog, tmp_path: Path) -> None:
    sets = [
        calibrations.measured("qwen3-0.6b", "Q8_0"),
        calibrations.measured("llama-3.2-1b", "Q8_0"),
    ]
    calibration = Found(calibrate(sets), tmp_path / "calibration.json")
    question = question_of(
        catalog, "chat", DAY, rate=0.01, slo="", hardware=("this",), models=("qwen3-0.6b",),
        quantizations=("q8-0",), private=True,
    )  # fmt: skip
    plain = recommend(catalog, question, machine=MACHINE, order="latency")
    found = recommend(catalog, question, machine=MACHINE, calibration=calibration)
    options = {one.runtime: one for one in found.options}
    own, other = options["headrace"], options["llama.cpp"]
    stated = {one.runtime: one for one in plain.options}
    assert other.e2e_s == stated["llama.cpp"].e2e_s  # it is of headrace's engine
    assert own.e2e_s != stated["headrace"].e2e_s
    alone = recommend(catalog, question, machine=None, calibration=calibration)
    (told,) = alone.told
    assert told.runtime == "headrace"
    assert any("speed is calibrated" in reason for reason in told.reasons)
    speed = next(one for one in told.sources if one.id.endswith(".speed.tpot"))
    assert speed.formula == "T2C"
    assert any("is planned with the calibration of" in note for note in found.notes)
