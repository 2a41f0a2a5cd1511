"""Measurements that others published, in one form, and the reasons for those left out.

Sources, below `hardware/` of a folder with these files: `silicon_sample.csv` of aiconfigurator
(serving points of vLLM, SGLang and TensorRT-LLM), `splitwise/perf_model.csv` of splitwise-sim, and
`distserve/profiler-a100-80g.vllm.json` of DistServe (a fit of its authors to their measurements).
Rows of the headrace catalog (`measurement`) come beside them.
"""

from __future__ import annotations

import csv
import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from headrace.catalog import Catalog

_KINDS = {"fp8": "fp8", "fp4": "nvfp4", "bf16": "bf16", "int4": "gptq"}
_LARGEST_TENSOR = 8
_DISTSERVE_PROMPTS = (256, 512, 1024, 2000)
_DISTSERVE_BATCHES = (1, 8, 32)
_DISTSERVE_CONTEXT = 1024


@dataclass(frozen=True, kw_only=True)
class Published:
    """One measured point. model, hardware, quantization: ids of the catalog.

    load: "closed loop" keeps `batch` requests under way, so prefills of some stop the others;
    "alone" is one batch from its start to its end. ttft_s, tpot_s: None where not measured.
    system_tokens_per_s: of a whole batch, where only that is known.
    """

    source: str
    id: str
    model: str
    hardware: str
    tensor: int
    quantization: str
    prompt_tokens: int
    output_tokens: int
    batch: int
    load: str
    runtime: str = ""
    ttft_s: float | None = None
    tpot_s: float | None = None


@dataclass
class Reading:
    """Rows to predict, and how many were left out for which reason."""

    rows: list[Published] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def read_all(catalog: Catalog, hardware: Path) -> Reading:
    """All sources. Raises OSError where a file is not there."""
    found = Reading()
    for part in (
        _silicon(catalog, hardware / "silicon_sample.csv", found.left_out),
        _splitwise(hardware / "splitwise" / "perf_model.csv", found.left_out),
        _distserve(hardware / "distserve" / "profiler-a100-80g.vllm.json", found.left_out),
    ):
        found.rows += part
    for row in catalog.measurements:
        found.left_out["catalog: prompt, output or batch are not stated"] += bool(
            row.output_tokens_per_s or row.system_tokens_per_s or row.ttft_s
        )
    return found


def _silicon(catalog: Catalog, path: Path, left_out: Counter[str]) -> Iterator[Published]:
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            model = catalog.models.find(row["model_path"])
            hardware = catalog.hardware.find(row["system"].replace("_", "-"))
            reason = ""
            if row["mode"] != "agg":
                reason = "prefill and decode on pools of their own"
            elif row["attention_dp_size"] not in ("", "1") or row["moe_ep_size"] not in ("", "1"):
                reason = "attention by data parallelism, or experts spread over devices"
            elif model is None:
                reason = "a checkpoint the catalog has not under that name"
            elif hardware is None:
                reason = "hardware the catalog has not"
            elif int(row["tp_size"]) > _LARGEST_TENSOR:
                # 28 and 36 divide no heads: what these figures count is not stated.
                reason = "above 8 devices as tensor parallelism"
            elif model.num_kv_heads and int(row["tp_size"]) > 2 * model.num_kv_heads:
                reason = "more devices than its attention divides over"
            if reason:
                left_out[f"aiconfigurator: {reason}"] += 1
                continue
            assert model is not None
            assert hardware is not None
            yield Published(
                source="aiconfigurator",
                id=row["id"],
                model=model.id,
                hardware=hardware.id,
                tensor=int(row["tp_size"]),
                quantization=_KINDS[row["precision"] or "bf16"],
                prompt_tokens=int(row["isl"]),
                output_tokens=int(row["osl"]),
                batch=int(row["batch_size"]),
                load="closed loop",
                runtime=row["backend"],
                ttft_s=float(row["silicon_ttft_ms"]) / 1e3,
                tpot_s=float(row["silicon_tpot_ms"]) / 1e3,
            )


def _splitwise(path: Path, left_out: Counter[str]) -> Iterator[Published]:
    names = {"a100-80gb": "a100-sxm", "h100-80gb": "h100-sxm"}
    runs: defaultdict[tuple[str, ...], list[tuple[float, float]]] = defaultdict(list)
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["hardware"] not in names:
                left_out["splitwise: the GPU's power was capped"] += 1
            elif row["model"] != "llama2-70b":
                left_out["splitwise: BLOOM-176B is not in the catalog"] += 1
            else:
                key = tuple(
                    row[name] for name in
                    ("hardware", "prompt_size", "batch_size", "token_size", "tensor_parallel")
                )  # fmt: skip
                runs[key].append((float(row["prompt_time"]), float(row["token_time"])))
    for (hardware, prompt, batch, output, tensor), times in runs.items():
        yield Published(
            source="splitwise",
            id=f"{hardware} tp{tensor} {prompt}+{output} x{batch}",
            model="llama-2-70b",
            hardware=names[hardware],
            tensor=int(tensor),
            quantization="f16",
            prompt_tokens=int(prompt),
            output_tokens=int(output),
            batch=int(batch),
            load="alone",
            ttft_s=statistics.median(time for time, _ in times) / 1e3,
            tpot_s=statistics.median(two for _, two in times) / 1e3,
        )


def _distserve(path: Path, left_out: Counter[str]) -> Iterator[Published]:
    fits = json.loads(path.read_text(encoding="utf-8"))
    for model, by_tensor in fits.items():
        if model != "facebook/opt-13b":
            left_out[f"distserve: {model} is not in the catalog"] += len(by_tensor)
            continue
        for tensor, fit in by_tensor.items():
            published = partial(
                Published, source="distserve", model="opt-13b", hardware="a100-sxm",
                tensor=int(tensor), quantization="f16", load="alone", runtime="vllm",
            )  # fmt: skip
            fixed, each, square = fit["prefill"]
            for tokens in _DISTSERVE_PROMPTS:
                yield published(
                    id=f"opt-13b tp{tensor} prefill {tokens}",
                    prompt_tokens=tokens,
                    output_tokens=1,
                    batch=1,
                    ttft_s=(fixed + each * tokens + square * tokens**2) / 1e3,
                )
            fixed, context, request = fit["decoding_smallbs"]
            for batch in _DISTSERVE_BATCHES:
                total = fixed + context * batch * _DISTSERVE_CONTEXT + request * batch
                yield published(
                    id=f"opt-13b tp{tensor} decode x{batch} at {_DISTSERVE_CONTEXT}",
                    prompt_tokens=_DISTSERVE_CONTEXT,
                    output_tokens=1,
                    batch=batch,
                    tpot_s=total / 1e3,
                )
