"""What of a device's memory is there for weights and a KV cache.

As in vLLM a share of the device's memory is the engine's, whoever holds the rest; unlike there,
nothing is run to see what a step takes: it is computed from the shapes of the model.
"""

from __future__ import annotations

from headrace.config.settings import EngineConfig
from headrace.engine.recorded_steps import recorded_sizes
from headrace.models import DecoderConfig
from headrace.ops.device import ATTENTION_BYTES, ATTENTION_CUT, SLICE_VALUES, DeviceMemory

LIVE_ROWS = 6
"""Arrays of a step as wide as the widest that are held at a time: inputs and outputs of an
operation, the residual stream, and copies padded to whole tiles."""

LOGIT_BYTES = 80
"""For each logit of a row that is drawn from, at the largest, which is top_p behind a mask: the
logits, those masked, and those of rows that are drawn, 4 each; weights and counts, 8 each; sorted
scores and their places, 12; counts in that order and two sums of them, 8 each. With flags that is
66 (tests/ops/torch/test_sampling.py); a sort on a device may take as much. The rest is for what an
allocator rounds up."""

TABLE_BYTES = 16
"""For each entry of a block table of a recorded step: itself, a copy by tiles, which may be of four
bytes for a kernel."""

TILE_ROWS = 128
"""Rows of q that a request of one token has at most in attention, for each head of K."""

DECODE_BYTES = 16
"""For each value of a slice of a weight that is decoded: itself, and the numbers it is made of."""


def device_room(device: DeviceMemory, share: float) -> int:
    """Bytes that are left of a share of the device's memory, with what is in use there now."""
    return max(0, int(device.total_bytes * share) - (device.total_bytes - device.free_bytes))


def step_bytes(
    model: DecoderConfig, vocab_size: int, config: EngineConfig, *, recorded_tables: int = 0
) -> int:
    """Bytes that a step computes with, beside weights and KV cache, at most.

    Prompts whose own log probabilities are asked for take more, and so do drafts that are verified:
    a row of logits for each token. recorded_tables: block tables of a model whose decode steps are
    recorded, which have memory of their own (recorded_steps.py); 0 where none are.
    """
    shapes = [model.attention_of(layer) for layer in range(model.num_layers)]
    inner = max((model.intermediate_size, *model.mlp_widths))
    if model.experts is not None:
        routed = model.experts.routing.experts_per_token * model.hidden_size
        inner = max(inner, model.experts.intermediate_size, routed)
    widest = max(2 * inner, model.hidden_size, *(shape.row_width for shape in shapes))
    rows = config.max_num_batched_tokens
    decoded = DECODE_BYTES * min(SLICE_VALUES, model.hidden_size * max(vocab_size, 2 * inner))
    drawn = LOGIT_BYTES * min(rows, config.max_num_seqs) * vocab_size
    length = config.max_model_len or model.max_positions
    cuts = config.max_num_seqs * -(-length // ATTENTION_CUT)
    left = 4 * TILE_ROWS * cuts * max(each.num_kv_heads * each.value_width for each in shapes)
    shared = decoded + min(ATTENTION_BYTES, left)
    taken = 4 * LIVE_ROWS * rows * widest + drawn + shared
    if not recorded_tables or config.enforce_eager:
        return taken
    # Activations of all sizes lie in the same place; tables and logits of each size stay.
    sizes = recorded_sizes(config.max_num_seqs)
    columns = -(-length // config.block_size)
    tables = TABLE_BYTES * recorded_tables * columns
    recorded = 4 * LIVE_ROWS * sizes[-1] * widest + shared
    return taken + recorded + sum(sizes) * (tables + 4 * vocab_size)
