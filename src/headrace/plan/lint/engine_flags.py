"""Flags of headrace, vLLM and llama-server to the settings of `EngineSetup`.

Spellings: `vllm serve --help`, llama.cpp's tools/server/README.md with its LLAMA_ARG_ environment
variables, and headrace's own settings. A flag that no check looks at is passed over and counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from headrace.config import EngineConfig, ServerConfig, flags_of, parse_int
from headrace.errors import ConfigError, shown
from headrace.plan.lint.engine_setup import EngineSetup, Runtime
from headrace.plan.lint.setting import Setting


class Written(NamedTuple):
    """One setting as it stands. value: None for a bare flag."""

    name: str
    value: Any
    where: str


# By field: what a value is, and the names it goes by, without dashes in front.
_VLLM = {
    "model": ("str", "model"),
    "tokenizer": ("str", "tokenizer"),
    "chat_template": ("str", "chat-template"),
    "quantization": ("str", "quantization q"),
    "load_format": ("str", "load-format"),
    "kv_type": ("str", "kv-cache-dtype"),
    "kv_bytes": ("int", "kv-cache-memory-bytes"),
    "kv_blocks": ("int", "num-gpu-blocks-override"),
    "block_size": ("int", "block-size"),
    "memory_share": ("float", "gpu-memory-utilization"),
    "max_num_seqs": ("int", "max-num-seqs"),
    "max_model_len": ("int", "max-model-len"),
    "step_tokens": ("int", "max-num-batched-tokens"),
    "chunked_prefill": ("bool", "enable-chunked-prefill"),
    "prefix_caching": ("bool", "enable-prefix-caching"),
    "attention_backend": ("str", "attention-backend VLLM_ATTENTION_BACKEND"),
    "enforce_eager": ("bool", "enforce-eager"),
    "compilation": ("str", "compilation-config O optimization-level"),
    "tensor_parallel": ("int", "tensor-parallel-size tp"),
    "pipeline_parallel": ("int", "pipeline-parallel-size pp"),
    "offload_gib": ("float", "cpu-offload-gb"),
    "draft_model": ("str", "speculative-model"),
    "draft_tokens": ("int", "num-speculative-tokens"),
    "speculative": ("spec", "speculative-config sc"),
}
_LLAMA = {
    "model": ("str", "model m hf-repo hf hfr"),
    "chat_template": ("str", "chat-template chat-template-file"),
    "jinja": ("bool", "jinja"),
    "kv_type": ("str", "cache-type-k ctk"),
    "kv_type_values": ("str", "cache-type-v ctv"),
    "kv_unified": ("bool", "kv-unified kvu"),
    "max_num_seqs": ("int", "parallel np n-parallel"),
    "total_context_tokens": ("int", "ctx-size c"),
    "step_tokens": ("int", "batch-size b batch"),
    "prefix_caching": ("bool", "cache-prompt"),
    "continuous_batching": ("bool", "cont-batching cb"),
    "flash_attention": ("flash", "flash-attn fa"),
    "gpu_layers": ("str", "n-gpu-layers gpu-layers ngl"),
    "cpu_experts": ("str", "n-cpu-moe ncmoe cpu-moe cmoe override-tensor ot"),
    "draft_model": ("str", "model-draft md spec-draft-model"),
    "draft_tokens": ("int", "draft-max draft draft-n spec-draft-n-max"),
    "speculative": ("str", "spec-type"),
}
_HEADRACE = {
    "model": ("str", "model"),
    "chat_template": ("str", "chat-template"),
    "kv_type": ("str", "kv-cache-dtype"),
    "kv_bytes": ("int", "kv-cache-memory-bytes kv-cache-memory"),
    "kv_blocks": ("int", "num-gpu-blocks-override"),
    "block_size": ("int", "block-size"),
    "max_num_seqs": ("int", "max-num-seqs"),
    "max_model_len": ("int", "max-model-len"),
    "step_tokens": ("int", "max-num-batched-tokens"),
    "prefix_caching": ("bool", "enable-prefix-caching"),
    "max_queued": ("int", "max-num-queued-reqs"),
    "request_timeout_s": ("float", "request-timeout"),
    "backend": ("str", "backend"),
    "cpu_level": ("str", "cpu-level"),
}
_TABLES: Mapping[Runtime, Mapping[str, tuple[str, str]]] = {
    "headrace": _HEADRACE, "vllm": _VLLM, "llama.cpp": _LLAMA,
}  # fmt: skip
# Of vLLM and llama-server, flags that take no value; others that are not known are taken by what
# follows them.
_BARE = frozenset({
    "enforce-eager", "enable-chunked-prefill", "enable-prefix-caching", "jinja", "kv-unified",
    "kvu", "cont-batching", "cb", "cpu-moe", "cmoe", "cache-prompt", "trust-remote-code",
    "enable-lora", "enable-auto-tool-choice", "mlock", "no-mmap", "metrics", "embedding",
    "embeddings", "reranking", "enable-expert-parallel", "disable-log-requests",
    "disable-log-stats", "context-shift", "verbose", "v", "offline", "slots", "props",
})  # fmt: skip
_OFF = {"no-cont-batching": "cont-batching", "nocb": "cont-batching"}
_TRUE, _FALSE = ("true", "on", "1", "yes"), ("false", "off", "0", "no")


def own_settings() -> frozenset[str]:
    """Names of headrace's settings, with dashes."""
    return frozenset(
        name.removeprefix("--")
        for config in (EngineConfig, ServerConfig)
        for flag in flags_of(config)
        for name in (flag.flag, *flag.aliases)
    )


def is_vllm_name(name: str) -> bool:
    """Whether vLLM has a setting of that name that checks look at."""
    return any(name in names.split() for _, names in _VLLM.values())


def written_words(runtime: Runtime, words: Iterable[tuple[str, str]]) -> list[Written]:
    """Flags of a command's words, each with its place, after the program and its subcommand.

    The first word that is no flag's value is the model.
    """
    listed = list(words)
    bare = _bare_flags(runtime)
    found: list[Written] = []
    at = 0
    while at < len(listed):
        word, where = listed[at]
        at += 1
        if not word.startswith("-") or word in ("-", "--"):
            named = any(one.name == "model" for one in found)
            if word not in ("-", "--") and runtime != "llama.cpp" and not named:
                found.append(Written("model", word, where))
            continue
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("_", "-") if word.startswith("--") else name
        if equals:
            found.append(Written(name, value, where))
        elif word.startswith("-O") and len(word) > 2 and runtime == "vllm":
            found.append(Written("O", word[2:], where))
        elif name in bare or name.startswith("no-") or name in _OFF or at == len(listed):
            # -fa took no value once and takes one now; so may others that are on and off.
            follows = listed[at][0] if at < len(listed) else "-"
            takes = follows.lower() in (*_TRUE, *_FALSE) and runtime != "headrace"
            found.append(Written(name, follows if takes else None, where))
            at += takes
        elif listed[at][0].startswith("-") and not _is_number(listed[at][0]):
            found.append(Written(name, None, where))
        else:
            found.append(Written(name, listed[at][0], where))
            at += 1
    return found


def engine_setup(runtime: Runtime, where: str, written: Iterable[Written]) -> EngineSetup:
    """Settings as they were written; the last of several counts. Raises ConfigError."""
    table = _TABLES[runtime]
    fields = {name: (field, kind) for field, (kind, names) in table.items()
              for name in names.split()}  # fmt: skip
    values: dict[str, Any] = dict(_defaults()) if runtime == "headrace" else {}
    unknown: list[str] = []
    for name, value, place in written:
        off = name.startswith("no-") or name in _OFF
        plain = _OFF.get(name, name.removeprefix("no-") if off else name)
        if plain not in fields and runtime == "llama.cpp" and plain.startswith("LLAMA-ARG-"):
            plain = plain.removeprefix("LLAMA-ARG-").lower()
        if plain not in fields:
            unknown.append(name)
            continue
        field, kind = fields[plain]
        flag = name if name.isupper() else ("--" if len(name) > 3 else "-") + name
        if kind == "spec":
            values |= _speculation(value, flag, place)
            continue
        values[field] = Setting(_typed(kind, value, off, flag, place), flag, place)
    return EngineSetup(runtime=runtime, where=where, unknown=tuple(unknown), **values)


def _bare_flags(runtime: Runtime) -> frozenset[str]:
    if runtime != "headrace":
        return _BARE
    return frozenset(
        flag.flag.removeprefix("--")
        for config in (EngineConfig, ServerConfig)
        for flag in flags_of(config)
        if flag.kind == "bool"
    )


def _defaults() -> dict[str, Setting[Any]]:
    """What headrace does where nothing is written, of settings that have such a value."""
    found = {}
    fields = {name.replace("-", "_"): field for field, (_, names) in _HEADRACE.items()
              for name in names.split()}  # fmt: skip
    for config in (EngineConfig, ServerConfig):
        for one in msgspec.structs.fields(config):
            if one.name in fields and one.default not in (None, "", msgspec.NODEFAULT):
                flag = "--" + one.name.replace("_", "-")
                found[fields[one.name]] = Setting(one.default, flag, "headrace's default")
    return found


def _typed(kind: str, value: Any, off: bool, flag: str, where: str) -> Any:
    text = "" if value is None else str(value).strip()
    try:
        if kind == "bool":
            if text and text.lower() not in (*_TRUE, *_FALSE):
                raise ValueError("must be on or off")
            return (text.lower() not in _FALSE) != off
        if kind == "flash":
            return text.lower() or ("off" if off else "on")
        if kind == "str":
            return text or "on"
        if kind == "int":
            return -1 if text.lower() == "auto" else parse_int(text)
        return float(text)
    except (ValueError, OverflowError):
        raise ConfigError(
            f"{where}: {flag} is {shown(text)}; it must be "
            f"{'on or off' if kind == 'bool' else 'a number'}: correct it"
        ) from None


def _speculation(value: Any, flag: str, where: str) -> dict[str, Setting[Any]]:
    """vLLM's --speculative-config: JSON on a command line, a mapping in YAML."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{where}: {flag} is not JSON: {error}; write an object") from error
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: {flag} is {shown(value)}; it must be an object")
    method = value.get("method") or ("draft model" if value.get("model") else "on")
    found: dict[str, Setting[Any]] = {"speculative": Setting(str(method), flag, where)}
    if value.get("model"):
        found["draft_model"] = Setting(str(value["model"]), f"{flag} model", where)
    tokens = value.get("num_speculative_tokens")
    if isinstance(tokens, int) and not isinstance(tokens, bool):
        found["draft_tokens"] = Setting(tokens, f"{flag} num_speculative_tokens", where)
    return found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
