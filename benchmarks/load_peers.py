"""Other load generators: how each is set up, told one workload, and what its result file says.

Pure but for reading result files. Figures keep the names of the tool's definition in
`headrace.bench.definitions`; times become milliseconds. Commands and files are those of vLLM
0.33.0, GuideLLM 0.8.1 and AIPerf 0.13.0. No tool may reach a hub: tokenizers are folders.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

STATISTICS = ("mean", "p50", "p99")
TOTALS = ("duration s", "requests/s", "output tokens/s", "prompt tokens", "output tokens")
"""Beside the metrics; the token counts are means of requests."""

PROMPTS = "prompts.jsonl"
PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}

Figures = dict[tuple[str, str], float]
"""By metric and statistic; those of TOTALS have the statistic ""."""


class Load(NamedTuple):
    """What everyone sends. rate: requests a second, evenly; None: `concurrency` users."""

    url: str
    model: str
    tokenizer: Path
    kind: str
    requests: int
    concurrency: int
    rate: float | None
    output_tokens: int
    seed: int


class Peer(NamedTuple):
    """One tool. name: of its definition here, and of its folder below --tools-dir.

    line: a prompt of its data file. command: reads that file and writes its result into a folder.
    read: the figures of that folder. why: by metric, what the difference comes from. unset: what it
    must not find in its environment.
    """

    name: str
    package: str
    program: str
    setup: tuple[str, ...]
    line: Callable[[str, int], dict[str, Any]]
    command: Callable[[Load, Path, Path], list[str]]
    read: Callable[[Path], Figures]
    why: Mapping[str, str]
    unset: tuple[str, ...] = ()


class UnreadableError(RuntimeError):
    """A result file lacks what this version of its tool writes."""


class Result(NamedTuple):
    """A tool's result file. value: the whole of its JSON, or a part."""

    path: Path
    value: Any

    @classmethod
    def read(cls, path: Path) -> Result:
        """Raises UnreadableError where it is not there, or no JSON."""
        try:
            return cls(path, json.loads(path.read_bytes()))
        except (OSError, ValueError) as error:
            raise UnreadableError(f"{path}: {error}") from error

    def at(self, *keys: str | int) -> Any:
        """What stands there; raises UnreadableError where nothing does."""
        found = self.value
        for key in keys:
            try:
                found = found[key]
            except (KeyError, IndexError, TypeError) as error:
                where = ".".join(str(each) for each in keys)
                raise UnreadableError(
                    f"{self.path}: has no {where}; its tool is of another version"
                ) from error
        return found

    def part(self, *keys: str | int) -> Result:
        """As `at`, to read on from there."""
        return Result(self.path, self.at(*keys))

    def completed(self, *keys: str | int) -> float:
        """The number of requests that succeeded; raises UnreadableError where none did."""
        count: float = self.at(*keys)
        if not count:
            raise UnreadableError(f"{self.path}: no request succeeded")
        return count


def vllm_command(load: Load, data: Path, out: Path) -> list[str]:
    """`vllm bench serve`. Burstiness inf sends evenly."""
    flags = ["bench", "serve", "--base-url", load.url, "--endpoint", PATHS[load.kind]]
    flags += ["--backend", "openai-chat" if load.kind == "chat" else "openai"]
    flags += ["--model", load.model, "--tokenizer", str(load.tokenizer)]
    # The server puts the template around; the client's would be a second one.
    flags += ["--dataset-name", "custom", "--dataset-path", str(data), "--skip-chat-template"]
    flags += ["--custom-output-len", str(load.output_tokens), "--disable-shuffle"]
    flags += ["--num-prompts", str(load.requests), "--seed", str(load.seed)]
    flags += ["--ignore-eos", "--temperature", "0", "--disable-tqdm"]
    flags += ["--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,99"]
    flags += ["--save-result", "--result-dir", str(out), "--result-filename", "vllm.json"]
    if load.rate is None:
        return [*flags, "--max-concurrency", str(load.concurrency)]
    return [*flags, "--request-rate", f"{load.rate:g}", "--burstiness", "inf"]


def read_vllm(folder: Path) -> Figures:
    """Raises UnreadableError where a figure is missing, or none of the requests succeeded."""
    told = Result.read(folder / "vllm.json")
    done = told.completed("completed")
    figures: Figures = {
        ("duration s", ""): told.at("duration"),
        ("requests/s", ""): told.at("request_throughput"),
        ("output tokens/s", ""): told.at("output_throughput"),
        ("prompt tokens", ""): told.at("total_input_tokens") / done,
        ("output tokens", ""): told.at("total_output_tokens") / done,
    }
    for metric in ("ttft", "tpot", "itl", "e2el"):
        for statistic, word in zip(STATISTICS, ("mean", "median", "p99"), strict=True):
            figures[metric, statistic] = told.at(f"{word}_{metric}_ms")
    return figures


def guidellm_command(load: Load, data: Path, out: Path) -> list[str]:
    """`guidellm run`. It asks for ignore_eos itself where the data say how long answers are."""
    backend = {
        "kind": "openai_http",
        "target": load.url,
        "model": load.model,
        "request_format": PATHS[load.kind],
        "http2": False,
        "extras": {"body": {"temperature": 0, "ignore_eos": True}},
    }
    profile: dict[str, Any] = {"kind": "concurrent", "streams": [load.concurrency]}
    if load.rate is not None:
        profile = {"kind": "constant", "rate": [load.rate]}
    told: dict[str, dict[str, Any]] = {
        "--backend": backend,
        "--profile": profile,
        "--constraint": {"kind": "max_requests", "count": load.requests},
        "--tokenizer": {"kind": "huggingface_auto", "model": str(load.tokenizer)},
        "--data": {"kind": "json_file", "path": str(data)},
        "--seed": {"kind": "static", "value": load.seed},
        "--output": {"kind": "json", "path": str(out / "guidellm.json")},
    }
    flags = [part for flag, value in told.items() for part in (flag, json.dumps(value))]
    return ["run", *flags, "--disable-console"]


# Its name for a metric in the file, and what makes milliseconds of it.
_GUIDELLM = {
    "time_to_first_token": ("time_to_first_token_ms", 1.0),
    "time_per_output_token": ("time_per_output_token_ms", 1.0),
    "inter_token_latency": ("inter_token_latency_ms", 1.0),
    "request_latency": ("request_latency", 1e3),
}


def read_guidellm(folder: Path) -> Figures:
    """Of successful requests. Raises UnreadableError as `read_vllm`."""
    told = Result.read(folder / "guidellm.json").part("benchmarks", 0)
    metrics = told.part("metrics")
    metrics.completed("request_totals", "successful")

    def mean(name: str) -> float:
        return float(metrics.at(name, "successful", "mean"))

    figures: Figures = {
        ("duration s", ""): told.at("duration"),
        ("requests/s", ""): mean("requests_per_second"),
        ("output tokens/s", ""): mean("output_tokens_per_second"),
        ("prompt tokens", ""): mean("prompt_token_count"),
        ("output tokens", ""): mean("output_token_count"),
    }
    for metric, (name, scale) in _GUIDELLM.items():
        spread = metrics.part(name, "successful")
        figures[metric, "mean"] = spread.at("mean") * scale
        figures[metric, "p50"] = spread.at("percentiles", "p50") * scale
        figures[metric, "p99"] = spread.at("percentiles", "p99") * scale
    return figures


def aiperf_command(load: Load, data: Path, out: Path) -> list[str]:
    """`aiperf profile`; sequential, so that every prompt is sent once and in order."""
    flags = ["profile", "-m", load.model, "-u", load.url, "--endpoint-type", load.kind]
    flags += ["--streaming", "--tokenizer", str(load.tokenizer), "--input-file", str(data)]
    flags += ["--custom-dataset-type", "single_turn", "--dataset-sampling-strategy", "sequential"]
    flags += ["--request-count", str(load.requests), "--random-seed", str(load.seed)]
    flags += ["--extra-inputs", "ignore_eos:true", "--extra-inputs", "temperature:0"]
    flags += ["--output-artifact-dir", str(out), "--export-level", "records", "--ui", "none"]
    if load.rate is None:
        return [*flags, "--concurrency", str(load.concurrency)]
    return [*flags, "--request-rate", f"{load.rate:g}", "--arrival-pattern", "constant"]


_AIPERF = (
    "time_to_first_token",
    "inter_token_latency",
    "inter_chunk_latency",
    "request_latency",
)


def read_aiperf(folder: Path) -> Figures:
    """Raises UnreadableError as `read_vllm`, also for a time that is not in milliseconds."""
    told = Result.read(folder / "profile_export_aiperf.json")
    told.completed("request_count", "avg")
    figures: Figures = {
        ("duration s", ""): told.at("benchmark_duration", "avg"),
        ("requests/s", ""): told.at("request_throughput", "avg"),
        ("output tokens/s", ""): told.at("output_token_throughput", "avg"),
        ("prompt tokens", ""): told.at("input_sequence_length", "avg"),
        ("output tokens", ""): told.at("output_sequence_length", "avg"),
    }
    for metric in _AIPERF:
        if metric not in told.value and metric == "inter_chunk_latency":
            continue
        unit = told.at(metric, "unit")
        if unit != "ms":
            raise UnreadableError(f"{told.path}: {metric} is in {unit}, not in ms")
        for statistic, word in zip(STATISTICS, ("avg", "p50", "p99"), strict=True):
            figures[metric, statistic] = told.at(metric, word)
    return figures


_START = (
    "first sight of text in both; it starts the clock before it makes the request and the "
    "connection, ours in this mode likewise"
)

VLLM = Peer(
    name="vllm",
    package="vllm",
    program="vllm",
    setup=(
        "python -m venv {dir}",
        "{dir}/bin/pip install vllm pandas   # many GB with what it needs of CUDA; for less, "
        "--no-deps and then what `vllm bench serve` asks for, torch of the CPU among it",
    ),
    line=lambda prompt, tokens: {"prompt": prompt, "output_tokens": tokens},
    command=vllm_command,
    read=read_vllm,
    why=MappingProxyType(
        {
            "ttft": "chat: vLLM before 0.33 stopped the clock at the chunk that only names the "
            "role, 0.33 at the first with content; completions: the first with choices",
            "tpot": "without the first token, n from usage; where the last, empty chunk counts, "
            "its wait is in it",
            "itl": "by chunk, not by token; ours by chunk leaves out chunks without text",
            "e2el": "ends with the last chunk that counts for it, not with the response",
            "duration s": "from before its first task to after the last response was read; ours "
            "from the first request sent to the last end",
            "requests/s": "completed over that duration",
            "output tokens/s": "tokens of usage over that duration",
            "prompt tokens": "of usage, template included",
            "output tokens": "of usage",
        }
    ),
)
GUIDELLM = Peer(
    name="guidellm",
    package="guidellm",
    program="guidellm",
    setup=("python -m venv {dir}", "{dir}/bin/pip install guidellm"),
    line=lambda prompt, tokens: {"prompt": prompt, "output_tokens_count": tokens},
    command=guidellm_command,
    read=read_guidellm,
    why=MappingProxyType(
        {
            "time_to_first_token": _START,
            "time_per_output_token": "with the wait for the first token in it, over n; requests "
            "weigh by their tokens. It is no TPOT of ours: `tpot_incl` is",
            "inter_token_latency": "a mean of each request, weighed by n − 1: what others call "
            "TPOT; no gap is in it as such",
            "request_latency": "to the end of the response, [DONE] included; ours ends with the "
            "last text",
            "duration s": "from taking up the first request to the end of the last",
            "requests/s": "one fewer than completed, over that duration: gaps are counted",
            "output tokens/s": "one token fewer than came, over that duration",
            "prompt tokens": "of usage, template included",
            "output tokens": "of usage",
        }
    ),
)
AIPERF = Peer(
    name="aiperf",
    package="aiperf",
    program="aiperf",
    setup=("python -m venv {dir}", "{dir}/bin/pip install aiperf"),
    line=lambda prompt, tokens: {"text": prompt, "output_length": tokens},
    command=aiperf_command,
    read=read_aiperf,
    # Offline it takes the tokenizer's name for one of the hub, also where it is a folder.
    unset=("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"),
    why=MappingProxyType(
        {
            "time_to_first_token": _START,
            "inter_token_latency": "a mean of each request, requests weigh alike; n counted by its "
            "own tokenizer, which may find fewer tokens in the text than the model made",
            "inter_chunk_latency": "gaps between chunks with text, as ours by chunk",
            "request_latency": "ends with the last chunk that has text, as ours",
            "duration s": "from the first request to the last response",
            "requests/s": "over that duration",
            "output tokens/s": "tokens that the client counted, over that duration",
            "prompt tokens": "counted by the client, without the chat template; ours as the "
            "server says, with it",
            "output tokens": "counted by the client",
        }
    ),
)
PEERS = MappingProxyType({each.name: each for each in (VLLM, GUIDELLM, AIPERF)})
