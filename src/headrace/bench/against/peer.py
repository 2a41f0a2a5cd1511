"""What a server is: its build and model as it says, its flags as its process was started with.

Nothing here is needed to measure; what cannot be read is absent. Values of flags and variables that
may be secret are masked.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from headrace.bench.client.answer import json_value
from headrace.bench.client.endpoints import Endpoint, get_request, split_url
from headrace.bench.client.failure_text import one_line
from headrace.bench.client.limits import ClientLimits
from headrace.bench.client.load_client import LoadClient
from headrace.errors import ConfigError
from headrace.weights.open import open_checkpoint

_TIMEOUT_S = 5.0
_MAX_REPLY_BYTES = 4 * 2**20
_SECRET = re.compile(r"key|token(?!iz|s\b|s-)|secret|password|passwd|auth", re.IGNORECASE)
_MASK = "********"
_LISTENING = "0A"
_ENGINE_METRICS = ("headrace:engine_info", "vllm:cache_config_info")


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts of a server beside its speed."""

    url: str
    build: str | None = None
    model: str | None = None
    """As the server names it: a file's path, or a name."""
    weights: str | None = None
    """Storage kind of the weights, of a server of ours."""
    parameters: int | None = None
    """Of the model's file: of llama-server as it says, of ours as MODEL holds, where it is GGUF."""
    weight_bytes: int | None = None
    """Of the tensors in the model's file, likewise."""
    slots: int | None = None
    """Requests that llama-server computes at once."""
    context: int | None = None
    """Positions of one request."""
    command: str | None = None
    """As its process was started; None where that is not of this machine and user."""


async def is_ready(endpoint: Endpoint) -> bool:
    """Whether the server answers for its models, and says nothing against being healthy."""
    health = await _get(endpoint, "/health")
    if health is None or health[0] not in (200, 404, 405):
        return False
    models = await _get(endpoint, "/v1/models")
    return models is not None and models[0] == 200


async def server_facts(endpoint: Endpoint) -> ServerFacts:
    """llama-server describes itself at /props; vLLM, Ollama and headrace give their version at an
    address of its own, and their name as the owner of the models that they list."""
    props = _table(await _get(endpoint, "/props"))
    settings = _table_of(props.get("default_generation_settings"))
    build = _text(props.get("build_info"))
    if build is not None:
        build = f"llama.cpp {build}"
    listed = await _listed(endpoint)
    meta = _table_of(listed.get("meta"))
    for path in ("/version", "/api/version"):
        if build is None:
            version = _text(_table(await _get(endpoint, path)).get("version"))
            owner = _text(listed.get("owned_by")) or ""
            build = None if version is None else f"{owner} {version}".strip()
    return ServerFacts(
        url=endpoint.base_url,
        build=build,
        model=_text(props.get("model_path")) or endpoint.model or None,
        weights=_text((await _labels(endpoint)).get("weight_codec")),
        parameters=_count(meta.get("n_params")),
        weight_bytes=_count(meta.get("size")),
        slots=_count(props.get("total_slots")),
        context=_count(settings.get("n_ctx")),
        command=listening_command(endpoint.base_url),
    )


def with_file(server: ServerFacts, path: str | Path) -> ServerFacts:
    """Of a server of the model at `path`: with the sizes of its GGUF file; the same for others."""
    checkpoint = open_checkpoint(path)
    if checkpoint.format != "gguf":
        return server
    tensors = checkpoint.tensors.values()
    return msgspec.structs.replace(
        server,
        parameters=sum(tensor.num_values for tensor in tensors),
        weight_bytes=sum(tensor.nbytes for tensor in tensors),
    )


async def engine_labels(endpoint: Endpoint) -> dict[str, str]:
    """What runs and what its KV cache is, as our own server's /metrics names them; ConfigError
    where it does not."""
    labels = await _labels(endpoint)
    if not labels:
        raise ConfigError(f"{endpoint.base_url}: /metrics does not say which engine runs")
    return labels


def is_here(url: str) -> bool:
    """Whether the address is one of loopback."""
    host = split_url(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listening_command(url: str) -> str | None:
    """The command line of the process that listens at an address of loopback (Linux, this user)."""
    parts = split_url(url)
    if not is_here(url):
        return None
    inodes = set(_listening_inodes(parts.port or (443 if parts.scheme == "https" else 80)))
    for process in Path("/proc").glob("[0-9]*"):
        if inodes.isdisjoint(_open_files(process)):
            continue
        try:
            return masked((process / "cmdline").read_bytes().decode().split("\0")[:-1])
        except (OSError, UnicodeDecodeError):
            return None
    return None


def masked(arguments: Sequence[str]) -> str:
    """A command line without the values of flags whose names sound like secrets."""
    shown: list[str] = []
    hides_next = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if hides_next and not argument.startswith("--"):
            shown.append(_MASK)
            hides_next = False
        elif equals and _SECRET.search(name):
            shown.append(f"{name}={_MASK}")
            hides_next = False
        else:
            shown.append(argument)
            hides_next = argument.startswith("-") and _SECRET.search(argument) is not None
    return " ".join(shown)


def _open_files(process: Path) -> Iterator[str]:
    """What a process has open; nothing of another user's."""
    try:
        files = list((process / "fd").iterdir())
    except OSError:
        return
    for file in files:
        with suppress(OSError):  # closed since
            yield str(file.readlink())


def _listening_inodes(port: int) -> Iterator[str]:
    """As links of a process name its sockets; of the kernel's tables of TCP (proc(5))."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                yield f"socket:[{fields[9]}]"


async def _labels(endpoint: Endpoint) -> dict[str, str]:
    """Empty of a server that is not ours."""
    reply = await _get(endpoint, "/metrics")
    if reply is None or reply[0] != 200:
        return {}
    try:
        labels = {
            sample.name: sample.labels
            for family in text_string_to_metric_families(reply[1].decode("utf-8", errors="replace"))
            for sample in family.samples
            if sample.name in _ENGINE_METRICS
        }
    except ValueError:  # not Prometheus's format
        return {}
    if len(labels) < len(_ENGINE_METRICS):
        return {}
    return {name: value for of_one in labels.values() for name, value in of_one.items()}


async def _listed(endpoint: Endpoint) -> dict[str, Any]:
    """What the list of models says of the endpoint's, or else of the first."""
    data = _table(await _get(endpoint, "/v1/models")).get("data")
    models = [_table_of(model) for model in data] if isinstance(data, list) else []
    named = [model for model in models if model.get("id") == endpoint.model]
    return next(iter(named or models), {})


async def _get(endpoint: Endpoint, path: str) -> tuple[int, bytes] | None:
    """Status and body; None where nobody answers."""
    request = get_request(endpoint, path)
    limits = ClientLimits(
        max_connections=1,
        connect_timeout_s=_TIMEOUT_S,
        request_timeout_s=_TIMEOUT_S,
        max_reply_bytes=_MAX_REPLY_BYTES,
    )
    client = LoadClient(request.origin, limits)
    try:
        raw = await client.send(request)
    finally:
        await client.close()
    return None if raw.failure is not None or raw.status is None else (raw.status, raw.body)


def _table(reply: tuple[int, bytes] | None) -> dict[str, Any]:
    if reply is None or reply[0] != 200:
        return {}
    try:
        return _table_of(json_value(reply[1]))
    except (ValueError, RecursionError):
        return {}


def _table_of(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return one_line(value, ()) if isinstance(value, str) and value else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
