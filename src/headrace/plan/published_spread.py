"""How far TPOTs that others measured lay from those planned: what the band does not hold."""

from __future__ import annotations

from headrace.catalog import Catalog
from headrace.plan.hardware_memory import constant_span
from headrace.plan.speed import SpeedModel

_COMPARED = "mbu-decode-server"
"""The comparison was made on devices that are planned with this share."""
_BATCHES = (4, 16, 64, 256)


def published_spread(catalog: Catalog, model: SpeedModel, batch: int) -> str:
    """What to say beside the band of a TPOT at `batch`; "" of what was not compared.

    The ends are the catalog's constants published-tpot-to-batch-N: measured over planned, of eight
    in ten measurements of others.
    """
    efficiencies = model.setup.efficiencies
    if efficiencies.rates is not None or efficiencies.bandwidth.source != _COMPARED:
        return ""
    most = next((one for one in _BATCHES if batch <= one), None)
    if most is None:
        return ""
    id = f"published-tpot-to-batch-{most}"
    low, high = constant_span(catalog, id)
    return (
        f"the band of TPOT is that of the efficiencies and too narrow: at such batches others "
        f"measured {low:g} to {high:g} times the TPOT planned, eight times in ten ({id})"
    )
