"""How an engine is to be run, whichever of three it is, in one set of names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from headrace.plan.lint.setting import Setting

Runtime = Literal["headrace", "vllm", "llama.cpp"]
RUNTIMES: tuple[Runtime, ...] = ("headrace", "vllm", "llama.cpp")


@dataclass(frozen=True, kw_only=True)
class EngineSetup:
    """Settings that checks look at. None: not stated, and what the runtime does then is not
    known."""

    runtime: Runtime
    where: str
    model: Setting[str] | None = None
    tokenizer: Setting[str] | None = None
    chat_template: Setting[str] | None = None
    jinja: Setting[bool] | None = None
    quantization: Setting[str] | None = None
    load_format: Setting[str] | None = None
    kv_type: Setting[str] | None = None
    kv_type_values: Setting[str] | None = None
    kv_unified: Setting[bool] | None = None
    kv_bytes: Setting[int] | None = None
    kv_blocks: Setting[int] | None = None
    """With `kv_bytes`: size of the cache."""
    block_size: Setting[int] | None = None
    memory_share: Setting[float] | None = None
    """Share of the GPU's memory."""
    max_num_seqs: Setting[int] | None = None
    max_model_len: Setting[int] | None = None
    """Tokens of one request."""
    total_context_tokens: Setting[int] | None = None
    """Context of all slots together, as in llama-server's --ctx-size."""
    step_tokens: Setting[int] | None = None
    chunked_prefill: Setting[bool] | None = None
    prefix_caching: Setting[bool] | None = None
    continuous_batching: Setting[bool] | None = None
    flash_attention: Setting[str] | None = None
    attention_backend: Setting[str] | None = None
    enforce_eager: Setting[bool] | None = None
    compilation: Setting[str] | None = None
    tensor_parallel: Setting[int] | None = None
    pipeline_parallel: Setting[int] | None = None
    gpu_layers: Setting[str] | None = None
    """Layers on the GPU."""
    offload_gib: Setting[float] | None = None
    """Weights kept beside it."""
    cpu_experts: Setting[str] | None = None
    speculative: Setting[str] | None = None
    """How drafts are made."""
    draft_model: Setting[str] | None = None
    draft_tokens: Setting[int] | None = None
    max_queued: Setting[int] | None = None
    request_timeout_s: Setting[float] | None = None
    backend: Setting[str] | None = None
    cpu_level: Setting[str] | None = None
    unknown: tuple[str, ...] = field(default=())
    """Flags that are not looked at."""

    @property
    def speculates(self) -> Setting[str] | None:
        """The setting that makes it draft; None where none does."""
        return self.speculative or self.draft_model

    @property
    def devices(self) -> int:
        """GPUs that one replica is told to use; 1 where nothing is said."""
        tensor = self.tensor_parallel.value if self.tensor_parallel else 1
        pipeline = self.pipeline_parallel.value if self.pipeline_parallel else 1
        return tensor * pipeline

    @property
    def context_tokens(self) -> Setting[int] | None:
        """Tokens that one request can have, as far as it is stated."""
        if self.max_model_len is not None:
            return self.max_model_len
        total, seqs = self.total_context_tokens, self.max_num_seqs
        if total is None or total.value <= 0:
            return None
        if self.kv_unified is not None and self.kv_unified.value:
            return total
        if seqs is None or seqs.value < 1:
            return None
        return Setting(total.value // seqs.value, f"{total.name} / {seqs.name}", total.where)
