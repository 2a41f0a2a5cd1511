"""Which published rows are compared, how, and what of a process's memory is counted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.plan_published import Prediction, Predictor, predict_all, report, row_table, spread
from benchmarks.process_memory import Resident, children, resident
from benchmarks.published_rows import Published, read_all
from headrace.catalog import Catalog

CATALOG = Catalog.load()
HEAD = (
    "id,mode,attention_dp_size,moe_ep_size,model_path,system,tp_size,precision,isl,osl,batch_size,"
    "backend,silicon_ttft_ms,silicon_tpot_ms\n"
)


def written(folder: Path, *rows: str) -> Path:
    (folder / "splitwise").mkdir()
    (folder / "distserve").mkdir()
    (folder / "silicon_sample.csv").write_text(HEAD + "".join(f"{row}\n" for row in rows))
    (folder / "splitwise" / "perf_model.csv").write_text(
        "model,hardware,prompt_size,batch_size,token_size,prompt_time,token_time,tensor_parallel\n"
        "llama2-70b,a100-80gb,512,1,128,190,54,2\n"
        "llama2-70b,a100-80gb,512,1,128,210,56,2\n"
        "llama2-70b,h100-80gb-pcap,512,1,128,210,56,2\n"
    )
    fit = {"facebook/opt-13b": {"1": {"prefill": [20, 0.1, 0], "decoding_smallbs": [20, 0, 1]}}}
    path = folder / "distserve" / "profiler-a100-80g.vllm.json"
    path.write_text(json.dumps(fit))
    return folder


GOOD = "a,agg,,,meta-llama/Llama-3.1-70B,h100_sxm,4,fp8,1024,1024,16,vllm,300,20"


def test_rows_are_read_and_those_left_out_have_a_reason(tmp_path: Path) -> None:
    reading = read_all(CATALOG, written(tmp_path, GOOD, GOOD.replace("agg", "disagg"),
                                        GOOD.replace(",4,", ",28,")))  # fmt: skip
    silicon = [row for row in reading.rows if row.source == "aiconfigurator"]
    assert [(row.tensor, row.quantization, row.tpot_s) for row in silicon] == [(4, "fp8", 0.02)]
    (splitwise,) = (row for row in reading.rows if row.source == "splitwise")
    assert splitwise.ttft_s == pytest.approx(0.2) and splitwise.tpot_s == pytest.approx(0.055)
    assert len([row for row in reading.rows if row.source == "distserve"]) == 7
    reasons = " ".join(reading.left_out)
    assert "pools of their own" in reasons and "above 8 devices" in reasons
    assert "power was capped" in reasons
    found = predict_all(CATALOG, reading)
    assert len(found) == len(reading.rows)
    said = report(found, reading.left_out)
    assert "| aiconfigurator | 1 |" in said and "closed loop, batch" in said
    assert row_table(found).count("\n") == len(found) + 1


def test_a_closed_loop_adds_the_prefills_of_others() -> None:
    row = Published(
        source="x", id="x", model="llama-3.1-8b", hardware="h100-sxm", tensor=1,
        quantization="bf16", prompt_tokens=1000, output_tokens=100, batch=9, load="closed loop",
        ttft_s=1.0, tpot_s=0.01,
    )  # fmt: skip
    predictor = Predictor(CATALOG)
    loop = predictor.predict(row)
    alone = predictor.predict(replace(row, load="alone"))
    assert loop.tpot_s == pytest.approx(alone.tpot_s + 8 * loop.ttft_s / 100)
    assert alone.ttft_s == pytest.approx(9 * loop.ttft_s)
    assert loop.tpot_error == pytest.approx(loop.tpot_s / 0.01 - 1)


def test_the_band_and_the_spread() -> None:
    row = Published(
        source="x", id="x", model="m", hardware="h", tensor=1, quantization="q", prompt_tokens=1,
        output_tokens=1, batch=1, load="alone", tpot_s=2.0,
    )  # fmt: skip
    assert Prediction(row, 1, 3, 1, 2, "bandwidth").in_band
    assert not Prediction(row, 1, 3, 2.5, 4, "bandwidth").in_band
    assert Prediction(row, 1, 3, 1, 2, "bandwidth").ttft_error is None
    assert spread([0.1, None]) is None
    assert spread([-0.2, 0.0, 0.1]) == pytest.approx((0.0, 0.1, -0.16, 0.08))


def test_memory_of_a_process_is_its_own_pages_and_those_of_files(tmp_path: Path) -> None:
    (tmp_path / "7" / "task" / "7").mkdir(parents=True)
    (tmp_path / "7" / "status").write_text("RssAnon:\t 10 kB\nRssFile:\t 4 kB\nRssShmem:\t 2 kB\n")
    (tmp_path / "7" / "task" / "7" / "children").write_text("8 9 ")
    assert resident(7, tmp_path) == Resident(12 * 1024, 4 * 1024)
    assert children(7, tmp_path) == [8, 9]
    assert resident(1, tmp_path) == Resident(0, 0) and children(1, tmp_path) == []
