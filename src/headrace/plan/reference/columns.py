"""Which fields of a row each table of the reference shows, and under which heading."""

from __future__ import annotations

from headrace.plan.reference.table import Column

RULE = (
    Column("figure", "figure", figure=True),
    Column("rule", "rule"),
    Column("holds when", "holds_when"),
)
PITFALL = (Column("what goes wrong", "rule"), Column("instead", "holds_when"))
MODEL = (
    Column("developer", "developer"),
    Column("total", "total_parameters", True, "parameters, all held in memory"),
    Column("active", "active_parameters", True, "parameters that a token meets"),
    Column("context", "context_tokens", True, "tokens, without extending the context"),
    Column("attention", "attention"),
    Column("licence", "licence"),
    Column("modalities", "modalities"),
    Column("local fit", "local_fit"),
    Column("best for", "best_for"),
)
EXPERTS = (
    Column("total", "total_parameters", True, "parameters, all held in memory"),
    Column("active", "active_parameters", True, "parameters that a token meets"),
    Column("experts", "num_experts", True, "routed, in a layer"),
    Column("per token", "experts_per_token", True, "routed experts that a token meets"),
    Column("shared", "shared_experts", True, "experts that every token meets"),
    Column("expert layers", "expert_layers", True),
    Column("layers", "num_layers", True),
    Column("routing", "routing"),
    Column("context", "context_tokens", True, "tokens, without extending the context"),
)
KIND = (
    Column("bits", "bits_per_weight", True, "stored bits per weight, with all scales"),
    Column("perplexity over F16", "perplexity_delta", True, "by model; lower is better"),
    Column("size", "size_bytes", True, "of whole models"),
    Column("quality", "quality"),
    Column("quality kept", "quality_share", True, "of the score at 16 bits"),
    Column("weights", "weight_type"),
    Column("activations", "activation_type"),
    Column("method", "method"),
    Column("runtimes", "runtimes"),
    Column("native on", "native_on"),
    Column("use", "recommended_for"),
)
RUNTIME = (
    Column("kind", "category"),
    Column("formats", "formats"),
    Column("backends", "backends"),
    Column("parallelism", "parallelism"),
    Column("several GPUs", "multi_gpu"),
    Column("concurrency", "concurrency"),
    Column("set-up", "setup"),
    Column("features", "features"),
    Column("best for", "best_for"),
    Column("not for", "not_for"),
    Column("licence", "licence"),
)
PROVIDER = (
    Column("kind", "category"),
    Column("tier", "tier"),
    Column("models", "models"),
    Column("input price", "input_price_range", True),
    Column("batch discount", "batch_discount_share", True),
    Column("cached reads", "cache_read_share", True, "share of the price of input"),
    Column("billing", "billing"),
    Column("free", "free_tier"),
    Column("availability", "availability_share", True),
    Column("compliance", "compliance"),
    Column("features", "features"),
    Column("best for", "best_for"),
)
PRICE = (
    Column("provider", "provider"),
    Column("model", "model"),
    Column("in", "input_usd_per_million_tokens", True, "US dollars for a million tokens"),
    Column("out", "output_usd_per_million_tokens", True),
    Column("cached", "cache_read_usd_per_million_tokens", True),
    Column("cache write, 5 min", "cache_write_5m_usd_per_million_tokens", True),
    Column(
        "in, long prompts",
        "input_usd_per_million_tokens_above",
        True,
        "above which number of tokens",
    ),
    Column("out, long prompts", "output_usd_per_million_tokens_above", True),
    Column("batch", "batch_factor", True, "share of the price for work that may wait"),
    Column("context", "context_tokens", True),
    Column("from", "effective_from", True),
    Column("until", "effective_to", True),
)
HARDWARE = (
    Column("kind", "category"),
    Column("memory", "memory_bytes", True),
    Column("bandwidth", "bandwidth_bytes_per_s", True),
    Column("dense BF16", "dense_bf16_flops", True, "without sparsity"),
    Column("dense FP8", "dense_fp8_flops", True),
    Column("dense FP4", "dense_fp4_flops", True),
    Column("link", "link_bytes_per_s", True, "to the other devices, per direction"),
    Column("power", "power_w", True),
    Column("largest at Q4", "largest_q4_model"),
    Column("best for", "best_for"),
)
RENT = (
    Column("per hour", "price_usd_per_hour", True, "rented, each device; sorted by the least"),
    Column("to buy", "price_usd", True),
    Column("memory", "memory_bytes", True),
    Column("bandwidth", "bandwidth_bytes_per_s", True),
)
TECHNIQUE = (
    Column("rank", "impact_rank", True, "1 gains most, as the source ranks"),
    Column("kind", "category"),
    Column("does", "does"),
    Column("gains", "gains", notes=True),
    Column("needs", "needs"),
    Column("not when", "avoid_when"),
    Column("phase", "phase"),
    Column("lossless", "lossless"),
    Column("runtimes", "runtimes"),
)
MEASUREMENT = (
    Column("model", "model"),
    Column("hardware", "hardware"),
    Column("provider", "provider"),
    Column("runtime", "runtime"),
    Column("kind", "quantization"),
    Column("at once", "concurrency", True, "requests"),
    Column("tokens/s", "output_tokens_per_s", True, "of one request after its first token"),
    Column("of all, tokens/s", "system_tokens_per_s", True, "of the system"),
    Column("TTFT", "ttft_s", True),
    Column("TPOT", "tpot_s", True),
    Column("requests/s", "requests_per_s", True),
    Column("other", "figures"),
    Column("conditions", "conditions"),
    Column("plausible", "plausible"),
)
ADVICE = (
    Column("strength", "strength"),
    Column("of", "of"),
    Column("says", "says"),
    Column("limits", "limits"),
    Column("values", "values"),
    Column("else", "remedy", about="what to do if it does not hold"),
)
