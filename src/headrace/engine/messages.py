"""What a client and an engine core say to each other: msgpack on the wire, as it is in process.

To the process, before anything else: Start, as JSON.
Client to core: Submit, Cancel, Ping, ResetPrefixCache, Shutdown.
Core to client: Loading, Ready, Started, Output, Stats, Pong, PrefixCacheReset, Failed.
Every Submit is answered by one or more Outputs, the last of which has a finish_reason; a Cancel is
idempotent and is answered by that last Output ("abort") unless the request had ended before.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.engine.params import SamplingParams

FinishReason = Literal["stop", "length", "timeout", "abort", "error"]

NO_TOKEN_LEFT = "no_token_left"
"""The code of a request whose own masks leave no token to come."""


class Start(msgspec.Struct, frozen=True):
    """The beginning of an engine's process: what it is to be, the first that it is told."""

    config: msgspec.Raw
    """An EngineConfig, read once the log can say what is wrong with it."""
    log_format: Literal["text", "json"]


class Submit(msgspec.Struct, frozen=True, tag=True):
    """A new request."""

    request_id: str
    prompt_token_ids: list[int]
    params: SamplingParams
    cache_salt: str = ""
    """Separates prefix caches; only equal salts share blocks."""
    priority: int = 0
    """Lower comes first; other than 0 only where the engine schedules by priority."""
    timeout_s: float | None = None
    """From the moment the core has it; then it ends with "timeout", wherever it is, and keeps the
    output it has. None: never."""
    report_prefill: bool = False
    """Whether Outputs without tokens report how far a prompt of several steps is."""


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """An order to give a request up; its blocks are free before the next step."""

    request_id: str


class Ping(msgspec.Struct, frozen=True, tag=True):
    """A probe: the loop answers it by a Pong between steps, if it turns."""

    number: int


class ResetPrefixCache(msgspec.Struct, frozen=True, tag=True):
    """An order to forget all blocks that no running request holds; answered by PrefixCacheReset."""

    number: int


class Shutdown(msgspec.Struct, frozen=True, tag=True):
    """An order to end the core; what is running is aborted."""


class Started(msgspec.Struct, frozen=True, tag=True):
    """A request left the queue for the first time. queue_s: how long it had waited.

    Comes before its first Output, unless it ends in the queue.
    """

    request_id: str
    queue_s: float


class Pong(msgspec.Struct, frozen=True, tag=True):
    """The answer to the Ping of that number."""

    number: int


class PrefixCacheReset(msgspec.Struct, frozen=True, tag=True):
    """The answer to the ResetPrefixCache of that number; blocks: that were forgotten."""

    number: int
    blocks: int


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True):
    """Log probability of one generated token and its most likely rivals, (id, logprob) each."""

    token_id: int
    logprob: float
    rank: int
    top: list[tuple[int, float]]


class Prefill(msgspec.Struct, frozen=True, array_like=True):
    """The progress of computing a request's prompt."""

    computed_tokens: int
    """Of the prompt, cached ones included."""
    cached_tokens: int
    spent_s: float
    """Since the request left the queue."""


class Output(msgspec.Struct, frozen=True, tag=True):
    """New tokens of a request (possibly none), in order."""

    request_id: str
    token_ids: list[int]
    logprobs: list[TokenLogprob] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | None = None
    """The id from stop_token_ids that ended it, None otherwise."""
    ends_with_text: bool = False
    """The request's grammar ended it, with "stop": its last token is text, and not an end id."""
    error: str | None = None
    error_code: str | None = None
    """With `error`, where the request itself is at fault: the code of a RequestError."""
    cached_tokens: int = 0
    """Prompt tokens found in the prefix cache (0 until the first token)."""
    num_preemptions: int = 0
    queue_s: float = 0.0
    prefill_s: float = 0.0
    """With `queue_s`: on the first token's Output, seconds waited and spent until it; 0
    otherwise."""
    decode_s: float = 0.0
    decode_tokens: int = 0
    """With `decode_s`: how many tokens came so far after the step of the first, and the seconds
    from the end of that step to the end of the last."""
    draft_tokens: int = 0
    accepted_tokens: int = 0
    """With `draft_tokens`: tokens that were guessed for it so far, and those of them that came."""
    cache_miss: str | None = None
    """On the first token's Output, why no more of the prompt was cached ("no_match at token 37";
    the reasons are those of Stats.miss_reasons); None otherwise or if all was."""
    prompt_logprobs: list[TokenLogprob | None] | None = None
    """With the first token (or the last Output, if no token comes), one per token of the prompt,
    None for its first; None where they were not requested or did not get ready."""
    prefill: Prefill | None = None
    """Before the first token, after each step that computes a part of the prompt and not its end,
    where Submit.report_prefill is set; None otherwise."""


class KVGroup(msgspec.Struct, frozen=True):
    """Layers whose K and V a request holds equally long."""

    window: int
    """Positions they still read of a request's past; 0 means all of them."""
    num_layers: int
    num_tables: int
    """Blocks that block_size tokens take in them."""
    most_entries: int
    """Of a block table that a request holds at most, of num_tables blocks each; 0 where that grows
    with its length."""


class EngineInfo(msgspec.Struct, frozen=True):
    """The facts that an engine reports once it can serve. Seconds per load phase are in
    `phases_s`."""

    model_type: str
    vocab_size: int
    max_model_len: int
    block_size: int
    num_blocks: int
    pool_tokens: int
    """The longest request for which the KV cache has blocks."""
    kv_cache_dtype: str
    """Of K and V, or of each where they differ: `int8,q4_0`."""
    backend: str
    cpu_level: str
    num_threads: int
    weight_codec: str
    """Of most of the matrices."""
    weight_bytes: int
    kv_bytes: int
    phases_s: dict[str, float]
    available_bytes: int = 0
    """Of memory when the KV cache was sized."""
    kv_budget: str = ""
    """In words, where its size is from."""
    kv_groups: list[KVGroup] = []
    """Of the model's layers."""
    expert_cache_bytes: int | None = None
    """Of memory for packed experts, of which the others stay in the file; None where all experts
    are packed at load."""
    cpu_expert_layers: int = 0
    """Layers, from the first on, whose experts the CPU computes beside a device, ALL_LAYERS of
    ops/placement.py for all; there are no limits then."""
    draft_model_type: str = ""
    """The family of the draft model; "" without one."""
    draft_weight_bytes: int = 0
    draft_kv_bytes: int = 0
    """With `draft_weight_bytes`: what the draft model takes beside the model."""
    length_cause: str = ""
    """What keeps requests at max_model_len where neither a setting nor the positions that the model
    was made for do; "" where one of these does."""
    scheduling_policy: str = "fcfs"
    """As configured. *_limit_*: what `headrace bench machine` found for this level and thread
    count, the rate for operands of compute_limit_kind (f32, bf16, int8); None where nothing was
    measured."""
    read_limit_bytes_per_s: float | None = None
    compute_limit_ops_per_s: float | None = None
    compute_limit_kind: str | None = None
    attention_limit_ops_per_s: float | None = None
    """Of operations of attention, by the kinds of K and V; there where `compute_limit_ops_per_s`
    is."""


class Loading(msgspec.Struct, frozen=True, tag=True):
    """The progress of loading, before Ready."""

    phase: str = "import"
    """The one that has begun, named as in EngineInfo.phases_s; "import" before the first."""
    done: int = 0
    total: int = 0
    """With `done`: bytes of weights, both 0 until they begin."""

    @property
    def progress(self) -> float:
        """Share of the weights that is loaded, 0 to 1; what follows them takes little time."""
        return self.done / self.total if self.total else 0.0


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The message sent once, when the engine can serve."""

    info: EngineInfo


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The engine could not start or its loop ended; nothing follows."""

    error: str


class Stats(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """State after a step, for metrics; counters are totals since start, blocks are counts.

    step_*: of the last step.
    """

    num_running: int = 0
    num_waiting: int = 0
    blocks_total: int = 0
    blocks_free: int = 0
    blocks_cached: int = 0
    blocks_owned: int = 0
    group_blocks: dict[str, int] = {}
    """Owned blocks of each group of layers, by its name."""
    group_cached: dict[str, int] = {}
    """Cached blocks of each group of layers, by its name."""
    steps: int = 0
    step_s: float = 0.0
    step_tokens: int = 0
    step_bytes: int = 0
    step_operations: int = 0
    step_attention_operations: int = 0
    """Those of attention among `step_operations`."""
    busy_s: float = 0.0
    moved_bytes: int = 0
    operations: int = 0
    attention_operations: int = 0
    """Those of attention among `operations`; with `busy_s` and `moved_bytes`: of all steps
    (models/cost.py)."""
    limited_steps: int = 0
    """Steps that computed less of a prompt than there were tokens for, so that they end in time."""
    limited_step_s: float = 0.0
    limited_step_predicted_s: float = 0.0
    """With `limited_step_s`: of those, what they took and what was predicted."""
    prompt_tokens: int = 0
    generation_tokens: int = 0
    computed_tokens: int = 0
    certain_tokens: int = 0
    """Of the generation_tokens, those that came without being drawn: a grammar or a thinking budget
    left nothing else."""
    spec_drafts: int = 0
    """Rows of a step with tokens that were guessed."""
    spec_draft_tokens: int = 0
    """Tokens that were guessed."""
    spec_accepted_tokens: int = 0
    """Of them, those that were drawn."""
    spec_accepted_by_position: dict[int, int] = {}
    """The same, by their place among the drafts of their row, from 0."""
    spec_compared_steps: int = 0
    """Steps with drafts whose time was compared with that of one without."""
    spec_compared_tokens: float = 0.0
    """Of a request, over those steps."""
    spec_compared_s: float = 0.0
    spec_plain_s: float = 0.0
    """With `spec_compared_s`: what they took, and what as many without drafts would have."""
    spec_draft_failures: int = 0
    """Requests for which a draft model gave nothing usable, and which went on without it."""
    prefix_queries_tokens: int = 0
    prefix_hits_tokens: int = 0
    num_preemptions: int = 0
    preemption_reasons: dict[str, int] = {}
    """"blocks" (a running request had to grow) or "priority" (one that comes before it took its
    place)."""
    timeouts: int = 0
    """Requests that ended with "timeout"."""
    step_seconds: list[int] = []
    """How many steps took at most each of telemetry's STEP_S bounds, and the rest last."""
    iteration_tokens: list[int] = []
    """How many computed at most each of ITERATION_TOKENS, likewise."""
    num_deferred: int = 0
    num_preempted: int = 0
    """With `num_deferred`: of those that wait, how many wait for a prefix that another request
    computes, and how many had run before."""
    miss_reasons: dict[str, int] = {}
    failed_steps: int = 0
    """Whose batch raised and was run again request by request."""
    out_of_memory_steps: int = 0
    """Times that memory was too little for a step or a part of it, which was computed in halves or
    put off."""
    kv_accounting_errors: int = 0
    """Times that blocks did not add up when the engine became idle."""
    expert_cache_hits: int = 0
    """Matrices of experts that were packed already when a step needed them."""
    expert_cache_misses: int = 0
    """Matrices that had to be packed first."""
    expert_cache_read_bytes: int = 0
    """Stored bytes that the misses read."""
    expert_cache_held_bytes: int = 0
    """Of packed experts, now."""


ToCore = Submit | Cancel | Ping | ResetPrefixCache | Shutdown
FromCore = Loading | Ready | Started | Output | Stats | Pong | PrefixCacheReset | Failed
