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

MAX_STEP_MS = 86_400_000
"""A day: more is a mistake, and what no float holds could not be compared with times."""


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings by which a model is loaded and run."""

    model: Annotated[
        str,
        Meta(
            description="A GGUF file, a Hugging Face folder, or a name: org/name of the hub "
            "(org/name:Q4_K_M for GGUF) or name:tag of Ollama's store. Default: the small "
            "model that ships in the package."
        ),
    ] = ""
    max_model_len: Annotated[
        Positive | None,
        Meta(
            description="Maximum tokens of prompt and output together; default, also written "
            "`auto`: the model's own length, or what the KV cache holds if that is "
            "less.",
            extra={"auto": True},
        ),
    ] = None
    block_size: Annotated[
        Literal[16, 32, 64], Meta(description="Tokens in a block of the KV cache.")
    ] = 32
    kv_cache_memory_bytes: Annotated[
        Positive | None,
        Meta(
            description="Memory of the KV cache; default: a quarter of what is available, but "
            "not more than --max-num-seqs requests of --max-model-len need.",
            extra={"aliases": ("--kv-cache-memory",)},
        ),
    ] = None
    populate_kv_cache: Annotated[
        bool,
        Meta(
            description="Have all memory of the KV cache ready before the first request. Otherwise "
            "it is found ahead of use, as far as the next steps may need it."
        ),
    ] = False
    num_gpu_blocks_override: Annotated[
        Positive | None,
        Meta(
            description="Number of KV blocks, in place of a size in bytes (the name is vLLM's; "
            "no GPU is needed)."
        ),
    ] = None
    expert_cache_memory_bytes: Annotated[
        Positive | None,
        Meta(
            description="Memory of the packed experts of a model whose experts do not all fit; the "
            "others stay in the mapped file until a step needs them. Default, also written `auto`: "
            "all experts are packed at load where they fit, else what the other weights and the "
            "KV cache leave. Models without experts have no such memory.",
            extra={"auto": True, "aliases": ("--expert-cache-memory",)},
        ),
    ] = None
    cpu_moe: Annotated[
        bool,
        Meta(
            description="Compute the experts that routers choose from on the CPU and all else on "
            "the device, as llama.cpp's flag does. Routers and shared experts stay on the device.",
            extra={"aliases": ("-cmoe",)},
        ),
    ] = False
    n_cpu_moe: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(
            description="Number of layers, from the first on, whose experts are computed on the "
            "CPU and the rest on the device; 0: none. Default, also written `auto`: none where "
            "the device holds all, else the fewest with which it does.",
            extra={"auto": True, "aliases": ("-ncmoe",)},
        ),
    ] = None
    dtype: Annotated[
        Literal["auto", "bfloat16", "float16", "half", "float32", "float"],
        Meta(
            description="Type that matrices which are not quantised are held and multiplied in: "
            "bfloat16 (its operands are rounded to it too), float16 or half, float32 or float "
            "(products of float32 with both). auto: as the file has each. Vectors and routers stay "
            "as they are. A value beyond float16 is refused, and any but auto where all matrices "
            "are quantised."
        ),
    ] = "auto"
    kv_cache_dtype: Annotated[
        Literal["auto", "f32", "bf16", "fp8", "int8", "q8_0", "q4_0"],
        Meta(
            description="Type that K and V are stored in; auto: f32 for F32 weights, bf16 "
            "otherwise. fp8 is e4m3 with the checkpoint's scale of each layer, or 1; int8, q8_0 "
            "and q4_0 (8, 8 and 4 bits) have a scale for each token of a head, and the last two "
            "rotate it first."
        ),
    ] = "auto"
    kv_cache_dtype_v: Annotated[
        Literal["auto", "f32", "bf16", "fp8", "int8", "q8_0", "q4_0"],
        Meta(
            description="Type that V is stored in where it is another than that of K; auto: that "
            "of --kv-cache-dtype. Latent values (MLA) lie with their keys, in the type of K."
        ),
    ] = "auto"
    kv_cache_dtype_sliding: Annotated[
        Literal["auto", "f32", "bf16", "fp8", "int8", "q8_0", "q4_0"],
        Meta(
            description="Type of K and V in layers with a sliding window or chunks, where it is "
            "another than in layers that see everything (gpt-oss, Gemma, Llama 4); auto: as there."
        ),
    ] = "auto"
    kv_cache_dtype_sliding_v: Annotated[
        Literal["auto", "f32", "bf16", "fp8", "int8", "q8_0", "q4_0"],
        Meta(
            description="Type of V in layers with a window where it is another than that of K; "
            "auto: that of --kv-cache-dtype-sliding where it is set, else that of V elsewhere."
        ),
    ] = "auto"
    kv_cache_near: Annotated[
        Literal["auto", "bf16", "none"],
        Meta(
            description="Whether the span of 64 positions that a token is in is kept in bf16 "
            "beside K and V of 8 and 4 bits, and read there by its own tokens: what is near "
            "matters most. auto: bf16 where K or V is q4_0 and the other has 8 or 4 bits too."
        ),
    ] = "auto"
    enable_prefix_caching: Annotated[
        bool, Meta(description="Share the KV blocks of equal prompt prefixes.")
    ] = True
    enable_forced_spans: Annotated[
        bool,
        Meta(
            description="Compute text that a grammar leaves no choice of in one step, and not a "
            "token at a time; answers are the same. GBNF and Lark have no such text, since it may "
            "be without end there."
        ),
    ] = True
    speculative_config: Annotated[
        str | None,
        Meta(
            description="Sources of drafts, guessed tokens that are computed together and change "
            "no answer: auto, every source that costs nothing, as far as they pay; none; ngram, "
            "suffix or mtp alone; or vLLM's JSON with `method` (ngram, suffix, draft_model, "
            "eagle3, dflash, medusa, mtp, auto, none), `model` (of draft_model, named as --model "
            "is, or the folder of an EAGLE-3, DFlash or Medusa head, or of layers for further "
            "tokens (mtp); alone it means what it is), "
            "`mtp` (with auto: the model's own layers for further tokens), "
            "`num_speculative_tokens`, `prompt_lookup_min`, "
            "`prompt_lookup_max`, `suffix_decoding_max_cached_tokens`, and `adaptive` (false: all "
            "drafts, whether they pay or not). Default: auto.",
            extra={"auto": True, "json": True, "aliases": ("-sc",)},
        ),
    ] = None
    max_num_batched_tokens: Annotated[
        Positive,
        Meta(
            description="Maximum tokens computed in one step; longer prompts are split into chunks."
        ),
    ] = 512
    max_step_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_STEP_MS,
            description="Target in ms for a step beside running streams: prompts are cut to fit, "
            "to 12 tokens at least. While none run a step takes all of --max-num-batched-tokens. "
            "0: no limit.",
        ),
    ] = 100
    max_num_seqs: Annotated[
        Positive, Meta(description="Maximum number of requests that run at the same time.")
    ] = 64
    scheduling_policy: Annotated[
        Literal["fcfs", "priority"],
        Meta(
            description="Order of requests: fcfs, first come, first served; priority, lower "
            "`priority` first, which may also preempt a running request. With fcfs a "
            "request with a priority is refused."
        ),
    ] = "fcfs"
    max_logprobs: Annotated[
        int,
        Meta(ge=0, description="Maximum log probabilities per token that a request may ask for."),
    ] = 20
    backend: Annotated[
        Literal["auto", "cpu", "torch", "reference"],
        Meta(
            description="Backend that computes: cpu, the C++ kernels; torch, PyTorch on a device "
            "(`pip install 'headrace[torch]'`); reference, slow NumPy; auto: torch where --device "
            "names one of CUDA, otherwise the kernels."
        ),
    ] = "auto"
    device: Annotated[
        str,
        Meta(
            description="Device that computes: cpu, cuda or cuda:N (the Nth; cuda is the first), "
            "AMD's too where torch is made for them; auto: the CPU, or with --backend torch the "
            "first CUDA device where there is one."
        ),
    ] = "auto"
    gpu_memory_utilization: Annotated[
        Annotated[float, Meta(gt=0, le=1)],
        Meta(
            description="Share of the memory of a CUDA device that this engine may fill: weights, "
            "what steps compute with, and the KV cache, which gets the rest of it unless its size "
            "is set. What others use there counts against it. No effect on a CPU, whose memory "
            "is shared by --kv-cache-memory-bytes."
        ),
    ] = 0.9
    async_scheduling: Annotated[
        bool | None,
        Meta(
            description="Plan a step and begin it while a device computes the one before; answers "
            "are the same. Default: on a CUDA device, unless --speculative-config asks for "
            "drafts; left out, that means none there. No effect on a CPU.",
        ),
    ] = None
    reproducible: Annotated[
        bool,
        Meta(
            description="Compute a request's tokens on a CUDA device to the same bits whatever is "
            "computed beside them; off: libraries are handed all rows at once and multiply as is "
            "fastest for their number. No effect on a CPU, where it is so always."
        ),
    ] = True
    enforce_eager: Annotated[
        bool,
        Meta(
            description="Start each operation of a step by itself: record no CUDA graphs at the "
            "start, and on a CPU no steps whose shapes come again."
        ),
    ] = False
    cpu_level: Annotated[
        Literal[
            "auto",
            "amx",
            "avx512_bf16",
            "avx512",
            "avx_vnni",
            "avx2",
            "neon_dotprod",
            "neon",
            "portable",
        ],
        Meta(
            description="Instruction level of the kernels; auto: the best that this CPU supports."
        ),
    ] = "auto"
    threads: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_THREADS)] | None,
        Meta(description="Number of compute threads; default: the CPUs that the process may use."),
    ] = None
    ignore_config_keys: Annotated[
        tuple[str, ...],
        Meta(description="Keys of the model's config that headrace does not know and may ignore."),
    ] = ()
    tokenizer_pre: Annotated[
        str | None,
        Meta(
            description="Name of the rule by which a GGUF file's tokenizer splits text, if the "
            "file names none or one that headrace does not know."
        ),
    ] = None
    generation_config: Annotated[
        str,
        Meta(
            description="Sampling parameters (temperature, top_k, top_p, min_p, "
            "repetition_penalty) of requests that leave them out. auto: what the model's "
            "generation_config.json or general.sampling.* recommends; vllm or none: neutral "
            "values, temperature 1 and no filter; or the path of a generation_config.json or "
            "of its folder."
        ),
    ] = "auto"
    offline: Annotated[
        bool, Meta(description="Never fetch a model: use only what is on this disk.")
    ] = False
