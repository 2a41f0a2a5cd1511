"""What a decoder's config says, in our words, whatever words its family uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.models.config_reader import ConfigReader
from headrace.models.rope import RopeConfig
from headrace.ops.interface import Activation, AttentionShape


@dataclass(frozen=True)
class DecoderConfig:
    """Widths in values, lengths in tokens. Families with more to say derive from it.

    vocab_size: None where the file does not state it; the embedding's rows are then taken.
    attention: heads of every layer; windows are in `windows`.
    rope: None in models that do not rotate. local_rope: of layers with a window, where it differs.
    windows: positions each layer sees, 0 for all; empty where no layer has a window.
    rotates: which layers rotate; empty where all do.
    attention_bias, mlp_bias, tied: None where the file does not say; what it holds then decides.
    output_bias: of the attention's output projection, where it differs from attention_bias.
    embedding_scale, residual_scale, logit_scale: factors of embeddings, of what a layer adds to
        the residual stream and of the logits. logit_softcap: 0 means none.
    """

    model_type: str
    vocab_size: int | None
    hidden_size: int
    intermediate_size: int
    num_layers: int
    attention: AttentionShape
    rope: RopeConfig | None
    max_positions: int
    norm_eps: float
    norm: Literal["rms", "layer"] = "rms"
    activation: Activation = "silu"
    attention_bias: bool | None = None
    output_bias: bool | None = None
    mlp_bias: bool | None = None
    tied: bool | None = None
    local_rope: RopeConfig | None = None
    windows: tuple[int, ...] = ()
    rotates: tuple[bool, ...] = ()
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    logit_softcap: float = 0.0

    @property
    def attention_width(self) -> int:
        """Values in the output of all heads."""
        return self.attention.num_heads * self.attention.head_dim

    @property
    def rotary_dim(self) -> int:
        """Dimensions of a head that are rotated."""
        head_dim = self.attention.head_dim
        return head_dim if self.rope is None else self.rope.rotary_dim(head_dim)


def read_attention(
    reader: ConfigReader,
    heads: int,
    head_dim: int,
    *,
    scale: float | None = None,
    softcap: float = 0.0,
) -> AttentionShape:
    """Grouped attention, by default with the usual scale; checks what has to divide what."""
    kv_heads = reader.size("num_key_value_heads", heads)
    if heads % kv_heads:
        reader.refuse("num_key_value_heads", kv_heads, f"divisors of num_attention_heads {heads}")
    if head_dim % 2:
        reader.refuse("head_dim", head_dim, "even numbers, which rotation needs")
    usual = head_dim**-0.5
    return AttentionShape(
        heads, kv_heads, head_dim, scale=usual if scale is None else scale, softcap=softcap
    )
