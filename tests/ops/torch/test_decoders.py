"""Every stored kind, decoded on tensors, has the bits that its codec gives."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.weights.codecs import CODECS, F8_E4M3, OF_FOLDERS, RAW, Codec

torch = pytest.importorskip("torch", reason="the torch backend needs PyTorch")
from headrace.ops.torch.decoders import decoded  # noqa: E402
from tests.ops.torch.on_host import DEVICE  # noqa: E402

pytestmark = pytest.mark.torch

KINDS = [*CODECS.values(), *OF_FOLDERS.values(), F8_E4M3]


@pytest.mark.parametrize("codec", KINDS, ids=lambda codec: codec.name)
def test_any_bytes_decode_to_the_same_bits(codec: Codec) -> None:
    """NaN too, where scales or numbers are; which NaN does not matter."""
    rows = np.random.default_rng(3).integers(0, 256, (61, 4 * codec.block_bytes), dtype=np.uint8)
    want = codec.decode(rows)
    got = decoded(codec, torch.from_numpy(rows).to(DEVICE)).cpu().numpy()
    same = got.view(np.uint32) == want.view(np.uint32)
    assert (same | (np.isnan(got) & np.isnan(want))).all()
    assert np.isfinite(want).mean() > 0.5


def test_what_is_no_kind_of_weights_is_refused() -> None:
    with pytest.raises(ValueError, match="I32 has no decoder"):
        decoded(RAW["I32"], torch.zeros((1, 4), dtype=torch.uint8))
