"""The arithmetic of an engine's memory in words: what there was, what it went to, what it holds."""

from __future__ import annotations

from headrace.engine.messages import EngineInfo

MIB = 1 << 20

USUAL_REQUEST_TOKENS = 1000
"""A request of everyday length, prompt and answer, to say how many of them fit at once."""


def memory_report(info: EngineInfo) -> list[str]:
    """Lines for people: memory and weights, the KV cache, and the requests it holds; a draft
    model, where there is one; where not all experts are packed at load, their cache.

    How many requests fit is said of requests that share nothing; with windows it is the least,
    since blocks behind a window are given back.
    """
    block_bytes = info.kv_bytes // info.num_blocks
    available = "memory: "
    if info.available_bytes:
        available += f"{_mib(info.available_bytes)} available when the KV cache was sized, "
    else:
        available += "how much is available is not known; "
    longest = min(info.max_model_len, info.pool_tokens)
    counts = f"{_at_once(info, longest):,} of that length"
    if longest > USUAL_REQUEST_TOKENS:
        usual = _at_once(info, USUAL_REQUEST_TOKENS)
        counts += f", {usual:,} of {USUAL_REQUEST_TOKENS:,} tokens"
    source = f" ({info.kv_budget})" if info.kv_budget else ""
    lines = [
        f"{available}beside {_mib(info.weight_bytes)} of weights ({info.weight_codec})",
        f"KV cache: {_mib(info.kv_bytes)}{source}: {info.num_blocks:,} "
        f"block{'' if info.num_blocks == 1 else 's'} of {info.block_size} tokens, "
        f"{block_bytes:,} bytes each; a token costs {_token_costs(info, block_bytes)}",
        f"longest request: {longest:,} tokens, prompt and output; at once fit {counts}",
    ]
    if info.draft_model_type:
        lines.append(
            f"draft model ({info.draft_model_type}): {_mib(info.draft_weight_bytes)} of weights, "
            f"{_mib(info.draft_kv_bytes)} of K and V, beside these"
        )
    if info.cpu_expert_layers:
        which = "all layers"
        from headrace.ops.placement import ALL_LAYERS  # with it come all operations

        if info.cpu_expert_layers < ALL_LAYERS:
            which = f"the first {info.cpu_expert_layers} layers"
        lines.append(f"experts of {which} are computed on the CPU, the rest on {info.cpu_level}")
    if info.expert_cache_bytes is not None:
        lines.append(
            f"experts: {_mib(info.expert_cache_bytes)} at most hold those that steps used last, "
            "packed; the others stay in the mapped file"
        )
    return lines


def _at_once(info: EngineInfo, tokens: int) -> int:
    """Requests of a length that the blocks hold together, at least."""
    entries = -(-tokens // info.block_size)
    blocks = sum(
        group.num_tables * min(entries, group.most_entries or entries) for group in info.kv_groups
    )
    return max(1, info.num_blocks // (blocks or entries))


def _token_costs(info: EngineInfo, block_bytes: int) -> str:
    """Bytes of a token, and of one beyond every window where some layers have one."""
    groups = info.kv_groups
    each = block_bytes * sum(group.num_tables for group in groups) or block_bytes
    text = f"{each // info.block_size:,} bytes in {info.kv_cache_dtype}"
    if not any(group.window for group in groups):
        return text
    beyond = block_bytes * sum(group.num_tables for group in groups if not group.window)
    widest = max(group.window for group in groups)
    return f"{text}, {beyond // info.block_size:,} once {widest:,} tokens follow it"


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / MIB:,.1f} MiB"
