"""The commands and settings that run an option, word by word.

Flags are those of `headrace serve --help`, of vLLM's and of llama.cpp's server. What is not known,
as where a checkpoint of a kind lies, is written in capitals and said in the note.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from headrace.catalog import Catalog
from headrace.catalog.rows import Model, Quantization
from headrace.plan.recommendation.checkpoints import checkpoint_of, hub_name, origin_of
from headrace.plan.recommendation.option import Machines, Option
from headrace.plan.recommendation.question import Question

# Of llama.cpp's --gpu-layers: more than any model has, so that all are on the GPU.
_ALL_LAYERS = "999"
# How LiteLLM names those whose API is not OpenAI's; it knows their addresses.
_LITELLM_PREFIXES = {"Anthropic Messages": "anthropic", "Gemini generateContent": "gemini"}
# What each listens on where nothing else is said.
_PORTS = {"headrace": 8000, "vllm": 8000, "llama.cpp": 8080}


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command that runs an option."""

    program: str
    """"headrace", "vLLM", "llama.cpp", "LiteLLM" or "OpenAI clients"."""
    words: tuple[str, ...] = ()
    """Words of a command; empty if `text` is a file or settings."""
    text: str = ""
    note: str = ""
    """What people have to know or fill in."""

    @property
    def line(self) -> str:
        """As it is typed, or the text."""
        return shlex.join(self.words) if self.words else self.text

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "program": self.program, "words": list(self.words), "text": self.line, "note": self.note
        }  # fmt: skip


def commands_of(catalog: Catalog, question: Question, option: Option) -> tuple[Command, ...]:
    """How to run the option, then how a gateway or a client reaches it."""
    model = catalog.models[option.model]
    if option.machines is None:
        return _of_api(catalog, question, option, model)
    kind = catalog.quantizations[option.quantization]
    machines = option.machines
    if option.runtime == "vllm":
        serving = _vllm(question, machines, kind, model)
    elif option.runtime == "headrace":
        serving = _headrace(question, machines, kind, model)
    else:
        serving = _llama_cpp(question, machines, kind, model)
    found = [serving]
    if machines.replicas > 1:
        port = _PORTS[option.runtime]
        found.append(_gateway_to_replicas(machines.replicas, served_name(model), port))
    return tuple(found)


def served_name(model: Model) -> str:
    """What replicas are told to answer to, whatever the checkpoint is called."""
    return hub_name(model) or model.id


def _headrace(question: Question, machines: Machines, kind: Quantization, row: Model) -> Command:
    model, note = _gguf(kind, row)
    return Command(
        program="headrace",
        words=(
            "headrace", "serve", model, "--served-model-name", served_name(row),
            "--max-model-len", str(question.context_tokens),
            "--max-num-seqs", str(machines.batch),
            "--enable-prefix-caching",
        ),
        note=note,
    )  # fmt: skip


def _vllm(question: Question, machines: Machines, kind: Quantization, model: Model) -> Command:
    name, note = hub_name(model), ""
    checkpoint = checkpoint_of(model, kind)
    words = ["vllm", "serve", checkpoint]
    if not checkpoint and name and origin_of(model, kind, "vllm") == "made on loading":
        words = ["vllm", "serve", name, "--quantization", "fp8"]
    elif not checkpoint:
        words[2] = "ORG/NAME" if kind.family == "float" else f"ORG/NAME-{kind.id.upper()}"
        note = f"take a checkpoint of {name or model.name} in {kind.name}; the catalog has none"
    if words[2] != served_name(model):  # vLLM calls it by the word after serve
        words += ["--served-model-name", served_name(model)]
    if model.remote_code:
        words.append("--trust-remote-code")
        note = "; ".join(filter(None, (note, "the checkpoint ships its own code: read it first")))
    if machines.tensor > 1:
        words += ["--tensor-parallel-size", str(machines.tensor)]
    if machines.pipeline > 1:
        words += ["--pipeline-parallel-size", str(machines.pipeline)]
    words += [
        "--max-model-len", str(question.context_tokens),
        "--max-num-seqs", str(machines.batch),
        "--gpu-memory-utilization", f"{machines.usable_share:g}",
        "--enable-prefix-caching",
    ]  # fmt: skip
    return Command(program="vLLM", words=tuple(words), note=note)


def _llama_cpp(question: Question, machines: Machines, kind: Quantization, row: Model) -> Command:
    model, note = _gguf(kind, row)
    layers = [] if machines.hardware == "this" else ["-ngl", _ALL_LAYERS]
    split = ["--split-mode", "layer"] if machines.devices > 1 else []
    return Command(
        program="llama.cpp",
        words=(
            "llama-server", "-hf" if "/" in model and not model.endswith(".gguf") else "-m", model,
            "--alias", served_name(row),
            # llama-server divides its context among the slots.
            "-c", str(question.context_tokens * machines.batch),
            "-np", str(machines.batch), *layers, *split, "--port", "8080",
        ),
        note=note,
    )  # fmt: skip


def _gguf(kind: Quantization, model: Model) -> tuple[str, str]:
    """What names a GGUF file of that kind, and what is to be known of it."""
    name, known = hub_name(model), checkpoint_of(model, kind)
    if kind.family == "float":
        note = "" if known else "the catalog does not have a checkpoint of it"
        return known or "ORG/NAME", note
    label = kind.name.split()[0].upper().replace("-", "_")
    if known:
        return f"{known}:{label}", ""
    return (
        f"ORG/NAME-GGUF:{label}",
        f"take a repository of the hub with GGUF files of {name or model.name}; the catalog has "
        "none of the maker's. A file on disk works as well",
    )


def _gateway_to_replicas(replicas: int, name: str, port: int) -> Command:
    """LiteLLM's config.yaml: several deployments of one name are balanced."""
    lines = ["model_list:"]
    for number in range(1, replicas + 1):
        lines += [
            f"  - model_name: {name}",
            "    litellm_params:",
            f"      model: openai/{name}",
            f"      api_base: http://REPLICA-{number}:{port}/v1",
            "      api_key: os.environ/REPLICA_API_KEY",
        ]
    lines += ["router_settings:", "  routing_strategy: least-busy"]
    return Command(
        program="LiteLLM", text="\n".join(lines),
        note="config.yaml of the proxy (litellm --config config.yaml); put in the replicas' hosts",
    )  # fmt: skip


def _of_api(
    catalog: Catalog, question: Question, option: Option, model: Model
) -> tuple[Command, ...]:
    provider = catalog.providers.find(option.api)
    seller = option.api if provider is None else provider.name
    url = None if provider is None else provider.base_url
    spoken = "" if provider is None else provider.api or ""
    called = catalog.price(option.model, option.api, question.on).model_at_provider
    name = called or "MODEL"
    notes = []
    if url is None:
        notes.append(f"the catalog does not have the base URL of {seller}")
    if called is None:
        notes.append(f"nor what {seller} calls {model.name}" if notes else
                     f"the catalog does not have what {seller} calls {model.name}")  # fmt: skip
    if spoken and spoken != "OpenAI":
        notes.append(f"the URL speaks {spoken}")
    text = f"base_url={url or 'BASE-URL'}\nmodel={name}"
    client = Command(
        program="OpenAI clients" if spoken in ("OpenAI", "") else "clients",
        text=text, note="; ".join(notes),
    )  # fmt: skip
    return client, _gateway_to_api(model, option.api, spoken, url or "BASE-URL", name)


def _gateway_to_api(model: Model, provider: str, spoken: str, url: str, name: str) -> Command:
    """LiteLLM's config.yaml with the API behind the same name that replicas would have."""
    prefix = _LITELLM_PREFIXES.get(spoken, "openai")
    key = provider.upper().replace("-", "_")
    lines = [
        "model_list:",
        f"  - model_name: {served_name(model)}",
        "    litellm_params:",
        f"      model: {prefix}/{name}",
        *([f"      api_base: {url}"] if prefix == "openai" else []),
        f"      api_key: os.environ/{key}_API_KEY",
    ]
    return Command(
        program="LiteLLM", text="\n".join(lines),
        note="config.yaml of the proxy (litellm --config config.yaml); the key comes from the "
        "environment",
    )  # fmt: skip
