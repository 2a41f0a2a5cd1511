"""From the words of a config to `Storage`: one reader for every program that makes folders.

    fp8                   e4m3, scales of blocks or of whole matrices (DeepSeek, Qwen, AutoFP8)
    fbgemm_fp8            e4m3, a scale for each row
    mxfp4                 experts of gpt-oss
    compressed-tensors    groups of modules, each with number type, bits and scope
    modelopt              an algorithm for all modules or one for each, or groups as above
    gptq, awq, auto-round whole numbers of 2 to 8 bits in groups along a row
    bitsandbytes          NF4, FP4 or INT8
    w8a8_int8             a scale for each row; blockwise_int8 one for each block (SGLang)

Every key is read by name: those that say how weights are stored decide, those that say how they
were made or how activations and caches are rounded are marked as of no effect, and any other is
left for `ConfigReader.finish` to stop the load.

Sources: transformers utils/quantization_config.py (GPTQConfig, AwqConfig, FineGrainedFP8Config),
compressed-tensors quantization/quant_config.py and quant_args.py, GPTQModel and AutoGPTQ
quantization/config.py, vLLM layers/quantization (auto_gptq.py, auto_awq.py, auto_round.py,
modelopt.py), modelopt's hf_quant_config.json, published configs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.storage.grouped_statement import compressed, modelopt
from headrace.weights.storage.int8_statement import blocks_of_int8, rows_of_int8
from headrace.weights.storage.integer_statement import auto_round, awq, bitsandbytes, gptq
from headrace.weights.storage.quantisation import KEY
from headrace.weights.storage.reading import (
    activations_of,
    block_of,
    cache_of,
    unquantised,
)
from headrace.weights.storage.storage import Storage, WeightFormat

_E4M3 = ("e4m3", "float8_e4m3fn")


def read_storage(reader: ConfigReader) -> Storage | None:
    """How the weights are stored of the model with this config; None for plain numbers.

    Raises UnsupportedModelError naming a method or a value that is not known here. Keys that are
    not known stay unread in `reader`.
    """
    stated = reader.section(KEY)
    if stated is None or not reader.raw(KEY):
        return None
    inner = stated.section("quantization")
    if inner is not None:
        # modelopt's own file has what config.json states one level deeper.
        stated.unused("producer")
        stated = inner
    method = _method(reader, stated)
    return _READERS[method](stated, method)


def _method(reader: ConfigReader, stated: ConfigReader) -> str:
    method = str(stated.optional("quant_method", str) or "").lower().replace("_", "-")
    method = _OTHER_NAMES.get(method, method)
    if stated.states("quant_algo") and method in ("", "fp8"):
        # Folders of FP8 whose experts modelopt converted further say both.
        method = "modelopt"
    if method not in _READERS:
        stated_method = stated.raw("quant_method")
        reader.refuse(
            KEY,
            reader.raw(KEY) if stated_method is None else stated_method,
            f"{', '.join(_READERS)}, null, or a GGUF file of the same model",
        )
    return method


def _fp8(stated: ConfigReader, method: str) -> Storage:
    stated.unused("dequantize")
    stated.expect("fmt", str, _E4M3, "e4m3")
    stated.expect("scale_fmt", str, ("float", "ue8m0"), "float")
    activations = activations_of(stated)
    block = block_of(stated, "weight_block_size")
    if block is None:
        # One scale, or one for each row: the tensor of scales has as many.
        stored = WeightFormat("e4m3", 8, "tensor", activations=activations)
    else:
        stored = WeightFormat("e4m3", 8, "block", *block, activations=activations)
    return Storage(method, stored, unquantised=unquantised(stated), cache=cache_of(stated))


def _fbgemm(stated: ConfigReader, method: str) -> Storage:
    stated.unused("activation_scale_ub")
    stored = WeightFormat("e4m3", 8, "channel", activations="dynamic")
    return Storage(method, stored, unquantised=unquantised(stated))


def _mxfp4(stated: ConfigReader, method: str) -> Storage:
    stated.unused("dequantize")
    stored = WeightFormat("e2m1", 4, "group", columns=32, scale="e8m0", layout="mxfp4")
    return Storage(method, stored, unquantised=unquantised(stated))


_READERS: Mapping[str, Callable[[ConfigReader, str], Storage]] = {
    "fp8": _fp8,
    "fbgemm-fp8": _fbgemm,
    "mxfp4": _mxfp4,
    "compressed-tensors": compressed,
    "modelopt": modelopt,
    "gptq": gptq,
    "awq": awq,
    "auto-round": auto_round,
    "bitsandbytes": bitsandbytes,
    "w8a8-int8": rows_of_int8,
    "blockwise-int8": blocks_of_int8,
}

_OTHER_NAMES = {"modelopt-fp4": "modelopt", "intel/auto-round": "auto-round"}
