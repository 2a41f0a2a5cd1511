"""The settings: one typed, frozen source for flags, --help, the YAML file and docs/flags.md.

A field's flag is its name with dashes, as in `vllm serve` where the meaning is the same. Every
field has a description (its help) and its limits; a test fails on one that has not.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Positive = Annotated[int, Meta(ge=1)]

MAX_THREADS = 1024
"""What the thread pool of the C++ kernels takes: more than any machine they are made for has."""


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a model is loaded and run."""

    model: Annotated[
        str,
        Meta(
            description="A GGUF file, a Hugging Face folder, or a name: org/name of the hub "
            "(org/name:Q4_K_M for GGUF) or name:tag of Ollama's store. "
            "Without one, the small model that ships in the package."
        ),
    ] = ""
    max_model_len: Annotated[
        Positive | None,
        Meta(
            description="Most tokens of prompt and output together; default, also written `auto`: "
            "the model's own length, or what the KV cache holds if that is less.",
            extra={"auto": True},
        ),
    ] = None
    block_size: Annotated[
        Literal[16, 32, 64], Meta(description="Tokens in a block of the KV cache.")
    ] = 32
    kv_cache_memory_bytes: Annotated[
        Positive | None,
        Meta(
            description="Memory of the KV cache; default: a quarter of what is available, "
            "at most enough for --max-num-seqs requests of --max-model-len.",
            extra={"aliases": ("--kv-cache-memory",)},
        ),
    ] = None
    num_gpu_blocks_override: Annotated[
        Positive | None,
        Meta(
            description="Number of KV blocks, in place of a size in bytes "
            "(the name is vLLM's; there need be no GPU)."
        ),
    ] = None
    kv_cache_dtype: Annotated[
        Literal["auto", "f32", "bf16"],
        Meta(description="Type of K and V; auto: f32 for F32 weights, bf16 otherwise."),
    ] = "auto"
    enable_prefix_caching: Annotated[
        bool, Meta(description="Share the KV blocks of equal prompt beginnings.")
    ] = True
    max_num_batched_tokens: Annotated[
        Positive, Meta(description="Token budget of one step; longer prompts are chunked.")
    ] = 512
    max_num_seqs: Annotated[
        Positive, Meta(description="Most requests that run at the same time.")
    ] = 64
    scheduling_policy: Annotated[
        Literal["fcfs", "priority"],
        Meta(
            description="Who comes first: fcfs, whoever came first; priority, the request with the "
            "lower `priority`, which may also take the place of a running one. With fcfs a request "
            "with a priority is refused."
        ),
    ] = "fcfs"
    max_logprobs: Annotated[
        int, Meta(ge=0, description="Most log probabilities per token a request may ask for.")
    ] = 20
    backend: Annotated[
        Literal["cpu", "reference"],
        Meta(description="What computes: C++ kernels, or the slow NumPy definition."),
    ] = "cpu"
    cpu_level: Annotated[
        Literal["auto", "amx", "avx512_bf16", "avx512", "avx2", "neon_dotprod", "neon", "portable"],
        Meta(description="Instruction level of the kernels; auto: the best this CPU has."),
    ] = "auto"
    threads: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_THREADS)] | None,
        Meta(description="Compute threads; default: the CPUs the process may use."),
    ] = None
    ignore_config_keys: Annotated[
        tuple[str, ...],
        Meta(
            description="Keys of the model's config that may be left out of account "
            "although headrace does not know them."
        ),
    ] = ()
    tokenizer_pre: Annotated[
        str | None,
        Meta(
            description="How a GGUF file's tokenizer splits text, by the name of a known rule, "
            "where the file names none or one that headrace does not know."
        ),
    ] = None
    offline: Annotated[
        bool, Meta(description="Never fetch a model: take only what is on this disk.")
    ] = False
