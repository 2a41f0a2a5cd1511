"""The codecs of K and V: one table in native/kv_codecs.h, which what Python says of them equals."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest

from headrace.cli import eval as eval_command
from headrace.config.settings import EngineConfig
from headrace.ops.cpu import CpuOps, _native
from headrace.ops.interface import Ops
from headrace.ops.kv import KV_CODECS, KVCacheSpec, KVCodec, LayerPlace
from headrace.ops.reference import ReferenceOps
from tests.ops.cpu.cases import KV_CODECS as PAIRS

OPS = CpuOps("auto", 1)


def test_python_knows_the_codecs_of_the_native_table() -> None:
    native = {name: facts for name, *facts in _native.kv_codecs()}
    sizes = {
        name: [size.value_bits, size.scale_bytes, size.rotated] for name, size in KV_CODECS.items()
    }
    assert native == sizes
    assert tuple(native) == get_args(KVCodec)
    settings = get_type_hints(EngineConfig)
    assert get_args(settings["kv_cache_dtype"]) == ("auto", *native)
    assert get_args(settings["kv_cache_dtype_v"]) == ("auto", *native)
    assert tuple(native) == eval_command.KV_CODECS
    # K and V have readers of their own, each compiled once: native/tests has every pair.
    assert {k for k, _ in PAIRS} == {v for _, v in PAIRS} == set(native)


@pytest.mark.parametrize(("k", "v"), PAIRS)
def test_blocks_are_as_long_as_the_spec_counts(k: KVCodec, v: KVCodec) -> None:
    places = (LayerPlace(0, 0, 2, 32, 16), LayerPlace(1, 0, 1, 80, 64, latent=True))
    spec = KVCacheSpec(places, 16, 3, k, v)
    assert OPS.kv_cache(spec).arrays.nbytes == 3 * spec.block_bytes


@pytest.mark.parametrize("ops", [OPS, ReferenceOps()], ids=["cpu", "reference"])
@pytest.mark.parametrize("field", ["k_codec", "v_codec"])
def test_an_unknown_codec_is_refused_with_those_there_are(ops: Ops, field: str) -> None:
    codecs = {"k_codec": "f32", "v_codec": "f32", field: "q9"}
    spec = KVCacheSpec((LayerPlace(0, 0, 1, 16),), 16, 1, **codecs)  # type: ignore[arg-type]
    names = ", ".join(KV_CODECS)
    with pytest.raises(ValueError, match=f"{field} 'q9' is unknown; choose one of {names}$"):
        ops.kv_cache(spec)
