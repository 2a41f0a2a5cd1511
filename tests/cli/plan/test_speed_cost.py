"""`headrace plan speed` and `plan cost` as they are typed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace.catalog import Catalog
from headrace.cli.plan.group import plan
from headrace.errors import HeadraceError
from headrace.plan.machine.device import device_of
from headrace.plan.model.model_shape import shape_of_catalog
from headrace.plan.speed.speed import Load, SpeedModel, SpeedSetup
from headrace.plan.step.efficiency import stated_efficiencies
from headrace.plan.step.step import Storage

SPEED = ("llama-3.1-8b", "--hardware", "h100")
COST = ("llama-3.3-70b", "--hardware", "h100", "--count", "4", "--quantization", "fp8")


def run(*words: str) -> Result:
    return CliRunner().invoke(plan, list(words))


def test_speed_is_the_library_s() -> None:
    catalog = Catalog.load()
    model = SpeedModel(
        SpeedSetup(
            shape=shape_of_catalog(catalog.models["llama-3.1-8b"]),
            storage=Storage(bytes_per_weight=2),
            device=device_of(catalog, "h100")[0],
            efficiencies=stated_efficiencies(catalog, catalog.hardware["h100"]),
        )
    )
    load = Load(prompt_tokens=2000, output_tokens=101, batch=8, cached_prompt_share=0.5)
    speed = model.speed(load)
    words = ("speed", *SPEED, "--prompt", "2k", "--output", "101", "--batch", "8",
             "--cached", "0.5", "--batches", "1,8", "--contexts", "1k,2050")  # fmt: skip
    done = run(*words, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    figures = {one["id"]: one for one in found["quantities"]}
    assert figures["speed.ttft"]["value"] == pytest.approx(speed.ttft.value_s)
    assert figures["speed.tpot"]["low"] == pytest.approx(speed.tpot.best_s)
    assert figures["speed.e2e"]["value"] == pytest.approx(speed.e2e.value_s)
    assert figures["speed.throughput"]["value"] == pytest.approx(speed.system_tokens_per_s)
    assert found["knee_batch"] == model.knee_batch(load.middle_context_tokens)
    points = [(one["context_tokens"], one["batch"]) for one in found["points"]]
    assert points == [(1000, 1), (1000, 8), (2050, 1), (2050, 8)]

    table = run(*words).output
    assert "Llama 3.1 8B (catalog) on NVIDIA H100 SXM 80 GB, bf16 products" in table
    assert "prompt 2,000 tokens, 1,000 of it cached, output 101, batch 8" in table
    for word in (f"{speed.ttft.value_s * 1e3:.2f} ms", f"{speed.tpot.value_s * 1e3:.2f} ms",
                 "decode by memory bandwidth", "mbu-decode-server", "T1"):  # fmt: skip
        assert word in table


@pytest.mark.long
def test_speed_has_a_line_for_speculation() -> None:
    words = ("speed", *SPEED, "--draft-acceptance", "0.8", "--draft-model", "llama-3.2-1b")
    found = json.loads(run(*words, "--json").output)["speculation"]
    assert found["draft"] == "Llama 3.2 1B" and found["draft_tokens"] == 4
    assert f"{found['speedup']:.2f} x (" in run(*words).output
    free = run("speed", *SPEED, "--draft-acceptance", "0.8").output
    assert "drafting that takes no time" in free


def test_speed_of_a_file_on_a_card(shared_assets: Path) -> None:
    path = shared_assets / "models" / "stories260K" / "stories260K.gguf"
    done = run("speed", str(path), "--hardware", "rtx-4090", "--prompt", "100", "--json")
    found = json.loads(done.output)
    assert found["model_source"] == "GGUF header" and found["quantities"][0]["id"] == "weights"


def test_cost_has_three_ways_and_the_break_even() -> None:
    words = ("cost", *COST, "--price", "28000", "--volumes", "1g,100g", "--on", "2026-11-22",
             "--cached", "0.5", "--provider", "groq", "--provider", "deepinfra")  # fmt: skip
    done = run(*words, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    ways = {one["id"]: one for one in found["ways"]}
    assert list(ways) == [
        "cost.own", "cost.rented", "cost.api.llama-3.3-70b.deepinfra",
        "cost.api.llama-3.3-70b.groq",
    ]  # fmt: skip
    figures = {one["id"]: one for one in found["quantities"]}
    for id, way in ways.items():
        assert figures[id]["value"] == pytest.approx(way["usd_per_million_tokens"])
    curves = found["break_even"]
    assert [len(one["curve"]) for one in curves] == [2, 2]
    assert found["load"]["batch"] == 256 and "the default limit of vllm" in found["notes"][0]
    table = run(*words).output
    for word in ("own hardware", "rented (runpod)", "API (DeepInfra)", "litellm-prices",
                 "2026-07-24", "100 G", f"{ways['cost.rented']['usd_per_million_tokens']:.2f}",
                 "own hardware (devices and power alone) against API (DeepInfra)"):  # fmt: skip
        assert word in table


def test_cost_without_a_price_says_what_to_give() -> None:
    done = run("cost", *COST)
    assert "not known: own: the price of NVIDIA H100 SXM 80 GB is not known" in done.output
    closed = run("cost", "gpt-5", "--json")
    assert [one["name"] for one in json.loads(closed.output)["ways"]] == ["API (OpenAI)"]


def test_more_work_costs_less_a_token() -> None:
    idle, busy = (
        json.loads(run("cost", *COST, "--utilization", share, "--json").output)["ways"][0]
        for share in ("0.1", "1")
    )
    ratio = idle["usd_per_million_tokens"] / busy["usd_per_million_tokens"]
    assert idle["id"] == "cost.rented" and ratio == pytest.approx(10)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["speed", "llama-3.1-7b"], "did you mean"),
        (["speed", "gpt-5"], "does not publish"),
        (["speed", "qwen3-8b", "--hardware", "h101"], "did you mean"),
        (["speed", *SPEED, "--tensor-parallel", "4"], "there is 1 of h100, 3 too few"),
        (["speed", *SPEED, "--cached", "1.5"], "cached_prompt_share is 1.5"),
        (["speed", *SPEED, "--batch", "0"], "batch is 0"),
        (["speed", *SPEED, "--batch", "90000"], "at most"),
        (["speed", *SPEED, "--draft-model", "llama-3.2-1b"], "--draft-acceptance"),
        (["speed", *SPEED, "--draft-acceptance", "2"], "acceptance is 2"),
        (["speed", "llama-3.1-70b", "--hardware", "rtx-4090"], "GB too much"),
        (["cost", "llama-3.1-7b"], "did you mean"),
        (["cost", *COST, "--utilization", "0"], "utilization is 0"),
        (["cost", *COST, "--provider", "grok"], "it has prices at"),
        (["cost", *COST, "--pue", "0.9", "--price", "1"], "pue is 0.9"),
        (["cost", "gpt-5", "--batch-api"], "batch_factor"),
    ],
)
def test_bad_input_is_told(words: list[str], told: str) -> None:
    done = run(*words)
    assert isinstance(done.exception, HeadraceError), done.output
    assert told in str(done.exception)


@pytest.mark.parametrize("value", ["1,x", "0", "1.5"])
def test_lists_are_of_whole_numbers_above_0(value: str) -> None:
    done = run("speed", *SPEED, "--batches", value)
    assert done.exit_code == 2 and "batches" in done.output


def test_a_cascade_is_priced_and_timed() -> None:
    words = ("cost", *COST, "--cascade", "llama-3.1-8b", "--escalation", "0.1")
    done = run(*words)
    assert done.exit_code == 0, done.output
    assert "Llama 3.1 8B first, 10% passed on to Llama 3.3 70B" in done.output
    assert "E2E without waiting, expected" in done.output and "rented" in done.output
    found = json.loads(run(*words, "--json").output)
    (rented,) = [one for one in found["ways"] if one["id"] == "cascade.rented"]
    expected = rented["small_usd_per_request"] + 0.1 * rented["large_usd_per_request"]
    assert rented["usd_per_request"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--escalation", "0.2"), "--cascade"),
        (("--cascade", "llama-3.1-8b", "--escalation", "2"), "from 0 to 1"),
        (("--cascade", "llama-3.1-7b"), "did you mean"),
        (("--cascade", "llama-3.1-8b", "--tokens-per-s", "9"), "cascade has two"),
    ],
)
def test_a_cascade_that_cannot_be_is_told(words: tuple[str, ...], says: str) -> None:
    done = run("cost", *COST, *words)
    assert isinstance(done.exception, HeadraceError)
    assert says in str(done.exception)


@pytest.mark.long
def test_pools_apart_are_printed_and_refused() -> None:
    words = ("speed", *SPEED, "--batch", "16", "--apart", "1:2", "--transfer", "50")
    done = run(*words)
    assert done.exit_code == 0, done.output
    assert "apart, 1 replicas that prefill and 2 that decode" in done.output
    found = json.loads(run(*words, "--json").output)
    assert found["apart"]["decode_replicas"] == 2
    assert {"apart.ttft", "apart.requests"} <= {one["id"] for one in found["quantities"]}
    for wrong, says in (("1-2", "PREFILL:DECODE"), ("0:2", "prefill replicas is 0")):
        refused = run("speed", *SPEED, "--apart", wrong)
        assert says in str(refused.exception)
    assert "--apart" in str(run("speed", *SPEED, "--transfer", "50").exception)


def test_cost_takes_the_batch_a_service_would_and_says_which() -> None:
    found = json.loads(run("cost", "llama-3.1-8b", "--hardware", "h100", "--prompt", "16k",
                           "--json").output)  # fmt: skip
    batch = found["load"]["batch"]
    assert found["notes"][0].startswith(f"batch {batch}: the largest that ")
    assert "slo-chat-itl" in found["notes"][0]
    asked = run("cost", "llama-3.1-8b", "--hardware", "h100", "--prompt", "16k", "--batch", "2")
    assert "batch 2" in asked.output and "choose another with" not in asked.output


def test_cost_says_what_it_assumes_and_what_was_given() -> None:
    words = ("cost", *COST, "--price", "28000", "--json", "--no-keep")
    for given in ((), ("--utilization", "0.5", "--usd-per-kwh", "0.3", "--operations", "2")):
        figures = {one["id"]: one for one in json.loads(run(*words, *given).output)["quantities"]}
        own = {one["name"]: one for one in figures["cost.own"]["inputs"]}
        bases = [own[name]["basis"] for name in ("utilisation", "operations", "power when idle")]
        if given:
            assert bases == ["given", "given", "assumed"] and own["electricity"]["value"] == 0.3
            assert figures["cost.own"]["name"] == "own hardware"
        else:
            assert bases == ["assumed"] * 3 and "alone" in figures["cost.own"]["name"]
            power = own["electricity-price.figure"]
            assert power["value"] == pytest.approx(0.15) and power["source"] == "compute-reference"


def test_the_line_below_names_a_figure_that_is_there() -> None:
    known = json.loads(run("cost", "gpt-5", "--json").output)
    ids = {one["id"] for one in known["quantities"]}
    line = run("cost", "gpt-5").output.splitlines()[-1]
    assert line.split("plan explain ")[1].split()[0] in ids


def test_ids_are_whole() -> None:
    said = run("cost", *COST, "--on", "2026-11-22", "--no-keep")
    assert "…" not in said.output
    figures = json.loads(run("cost", *COST, "--on", "2026-11-22", "--no-keep", "--json").output)
    ids = [one["id"] for one in figures["ways"]]
    assert len(ids) > 5 and all(id in said.output for id in ids)


@pytest.mark.long
def test_a_report_has_the_batch_of_cost() -> None:
    words = ("llama-3.1-8b", "--hardware", "h100", "--on", "2026-11-22", "--no-keep", "--json")
    report = json.loads(run("report", *words).output)
    cost = json.loads(run("cost", *words).output)
    figures = [{one["id"]: one["value"] for one in each["quantities"]} for each in (report, cost)]
    assert figures[0]["cost.served"] == figures[1]["cost.served"]
    assert figures[0]["speed.throughput"] > 0
    one = json.loads(run("report", *words, "--batch", "1").output)
    assert {each["id"]: each["value"] for each in one["quantities"]}["cost.served"] < (
        figures[0]["cost.served"]
    )
    assert "choose another with --batch" in " ".join(run("report", *words[:-1]).output.split())
    assert "choose another" not in run("report", *words[:-1], "--batch", "1").output


@pytest.mark.long
def test_a_knee_beyond_what_fits_is_called_that(tmp_path: Path) -> None:
    words = ("speed", "gpt-oss-120b", "--quantization", "mxfp4", "--hardware", "h100", "--count",
             "2", "--no-keep")  # fmt: skip
    done = run(*words).output
    assert (
        "beyond what fits (" in done and not json.loads(run(*words, "--json").output)["knee_fits"]
    )
    page = tmp_path / "page.html"
    run(*words, "--html", str(page))
    assert ", beyond what fits (" in page.read_text(encoding="utf-8")
    small = ("speed", "qwen3-8b", "--hardware", "m4-max", "--no-keep")
    assert "beyond what fits" not in run(*small, "--html", str(page)).output
    assert "beyond what fits" not in page.read_text(encoding="utf-8")
    assert json.loads(run(*small, "--json").output)["knee_fits"]


@pytest.mark.long
def test_the_band_of_tpot_holds_what_others_measured() -> None:
    def tpot(*words: str) -> tuple[float, float, str]:
        told = json.loads(run("speed", *words, "--json").output)
        found = next(one for one in told["quantities"] if one["id"] == "speed.tpot")
        sources = " ".join(one["source"] for one in found["inputs"])
        return found["low"] / found["value"], found["high"] / found["value"], sources

    for batch, low, high in ((1, 0.93, 2.04), (64, 0.82, 1.49), (128, 0.76, 1.45)):
        told = tpot(*SPEED, "--batch", str(batch))
        assert told[0] <= low * 1.001 and told[1] >= high * 0.999
        assert (
            f"published-tpot-to-batch-{4 if batch == 1 else 64 if batch == 64 else 256}" in told[2]
        )
    assert "published-tpot" not in tpot("qwen3-8b", "--hardware", "rtx-4090")[2]


@pytest.mark.parametrize("hardware", ["m3-max", "m4-max", "m5-max", "jetson-agx-orin", "t4",
                                      "rtx-4060-ti-16gb"])  # fmt: skip
def test_the_edge_is_planned(hardware: str) -> None:
    words = ("speed", "llama-3.1-8b", "--quantization", "q4-k-m", "--hardware", hardware)
    done = run(*words, "--json", "--no-keep")
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert found["compute_type"] == ("fp16" if hardware[0] in "mt" else "bf16")
    asked = run(*words, "--compute-type", "bf16", "--json", "--no-keep")
    figures = [{one["id"]: one["value"] for one in json.loads(each.output)["quantities"]}
               for each in (done, asked)]  # fmt: skip
    assert figures[0]["speed.ttft"] == figures[1]["speed.ttft"]  # one stands for the other


@pytest.mark.parametrize("command", ["fit", "speed", "cost", "explain", "report"])
def test_help_has_examples(command: str) -> None:
    assert run(command, "--help").output.count(f"headrace plan {command}") >= 3


@pytest.mark.long
def test_this_is_a_card_where_there_is_one(with_cards: Callable[..., dict[str, str]]) -> None:
    env = with_cards(*["NVIDIA H100 80GB HBM3, 81559"] * 2)
    runner = CliRunner()
    words = ["llama-3.1-8b", "--no-keep"]
    for command in ("fit", "speed"):
        done = runner.invoke(plan, [command, *words], env=env)
        assert done.exit_code == 0 and "NVIDIA H100 SXM 80 GB" in done.output, done.output
        assert "2 x NVIDIA H100 SXM 80 GB: --count 2" in done.stderr
    assert (
        "this machine ("
        in runner.invoke(plan, ["fit", *words, "--hardware", "cpu"], env=env).output
    )
    many = runner.invoke(plan, ["fit", *words, "--count", "3"], env=env)
    assert isinstance(many.exception, HeadraceError) and "has 2" in str(many.exception)


def test_only_the_peak_that_is_computed_with_is_an_input() -> None:
    for kind in ("fp8", "bf16"):
        words = ("speed", *SPEED, "--quantization", kind, "--json", "--no-keep")
        figures = {one["id"]: one for one in json.loads(run(*words).output)["quantities"]}
        for id in ("speed.ttft", "speed.ridge"):
            named = [one["name"] for one in figures[id]["inputs"] if "_flops" in one["name"]]
            assert named == [f"h100-sxm.dense_{kind}_flops"]
