"""What runtimes would say of a choice of parallelism that arithmetic alone lets pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.plan.model.model_shape import ModelShape
    from headrace.plan.speed.replica import Replica


def parallel_notes(replica: Replica) -> tuple[str, ...]:
    """A note where heads do not divide over the devices.

    Raises ConfigError for expert parallelism of a model without experts.
    """
    shape, parallelism = replica.shape, replica.model.setup.parallelism
    if parallelism.expert > 1 and not shape.moe:
        raise ConfigError(
            f"expert_parallel is {parallelism.expert}; {shape.name} has no experts: omit it"
        )
    return heads_notes(shape, parallelism.tensor)


def heads_notes(shape: ModelShape, tensor: int) -> tuple[str, ...]:
    """A note where attention heads do not divide over `tensor` devices; none where they do."""
    heads = sorted({layer.heads for layer in shape.attention if layer.heads % tensor})
    if not heads:
        return ()
    return (
        f"{' and '.join(map(str, heads))} attention heads cannot be divided over {tensor} "
        "devices, which most runtimes refuse; powers of two divide most models",
    )
