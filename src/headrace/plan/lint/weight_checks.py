"""Weights and kernels: files that a runtime reads badly, kinds made without calibration, kernels
that are left out."""

from __future__ import annotations

import re

from headrace.plan.lint import planned
from headrace.plan.lint.finding import Check, Evidence, Found, Needs, Outcome
from headrace.plan.lint.subject import Subject
from headrace.plan.memory.weights_memory import weights_quantity

_ENGINE_NEEDED = "an engine's config"
# What vLLM rounds while it loads, without any data.
_ROUNDED = ("rtn", "experts_int8", "int8", "int4", "torchao", "bitsandbytes")
_SLOW_ATTENTION = ("XFORMERS", "TORCH_SDPA", "NAIVE", "EAGER")
# Explicit names that keep vLLM from the Marlin kernels that it would choose by itself.
_PLAIN_KERNELS = {"awq": "awq_marlin", "gptq": "gptq_marlin"}
_QUANTIZED_KV = re.compile(r"(iq|q)\d", re.IGNORECASE)
_LOW_BITS = 4.0
_FLOATS = ("F32", "F16", "BF16")


def gguf_in_vllm(subject: Subject) -> Outcome:
    """vLLM reads GGUF without its fast kernels."""
    engine = subject.engine
    if engine is None:
        return Needs(_ENGINE_NEEDED)
    if engine.runtime != "vllm":
        return ()
    signs = [
        one
        for one in (engine.model, engine.load_format, engine.quantization)
        if one is not None and "gguf" in one.value.lower()
    ]
    if not signs:
        return ()
    fact = subject.catalog.runtimes["vllm"].facts["not_for"]
    return (
        Found(
            "vLLM runs a GGUF file much slower than its own formats",
            (
                *(one.evidence() for one in signs),
                Evidence("vLLM is not for", str(fact.value), "catalog: vllm.not_for"),
            ),
            "headrace serve or llama-server for this file; or the model as FP8, AWQ or GPTQ",
        ),
    )


def uncalibrated(subject: Subject) -> Outcome:
    """Few bits by rounding alone."""
    engine, files = subject.engine, subject.files
    if engine is None:
        return Needs(_ENGINE_NEEDED)
    setting = engine.quantization
    if setting is not None and setting.value.lower() in _ROUNDED:
        return (
            Found(
                "weights are rounded to few bits without calibration data",
                (setting.evidence(),),
                "a checkpoint made with AWQ, GPTQ or SmoothQuant over text like yours, or "
                "--quantization fp8; then `headrace eval`",
            ),
        )
    if files is None:
        return subject.need("files", "the model's files on this disk: add --model")
    if files.format != "gguf":
        method = str(files.quantization.get("quant_method", "")).lower()
        if method in _ROUNDED:
            where = f"{files.name}: quantization_config"
            return (
                Found("weights are rounded to few bits without calibration data",
                      (Evidence("quant_method", method, where),),
                      "a checkpoint made with AWQ or GPTQ; then `headrace eval`"),
            )  # fmt: skip
        return ()
    if files.imatrix:
        return ()
    total = sum(files.kinds.values())
    low = {
        name: size
        for name, size in files.kinds.items()
        if name not in _FLOATS and (_bits(subject, name) or 99) < _LOW_BITS
    }
    share = sum(low.values()) / total if total else 0.0
    if share < 0.1:
        return ()
    return (
        Found(
            "a GGUF file of fewer than 4 bits was made without an importance matrix",
            (
                Evidence("of its bytes in such kinds", round(share, 3), files.name, "share"),
                Evidence("kinds", ", ".join(low), files.name),
                Evidence("quantize.imatrix.file", "not there", f"{files.name}: metadata"),
            ),
            "a file made with an imatrix, or Q4_K_M and above; then `headrace eval kl`",
        ),
    )


def mixed_precision(subject: Subject) -> Outcome:
    """Fewer bits for one part than for another, and no evaluation of the whole."""
    engine = subject.engine
    if engine is None:
        return Needs(_ENGINE_NEEDED)
    keys, values = engine.kv_type, engine.kv_type_values
    small = [
        one
        for one in (keys, values)
        if one is not None
        and (_QUANTIZED_KV.match(one.value) or one.value.lower().startswith(("fp8", "int")))
    ]
    mixed = []
    if values is not None and keys is not None and keys.value != values.value:
        mixed = [keys, values]
    if not small and not mixed:
        return ()
    if subject.evaluation is not None:
        return ()
    settings = {one.name: one for one in (*small, *mixed)}
    weights = planned.weight_kind(subject)
    evidence = [one.evidence() for one in settings.values()]
    if weights is not None:
        evidence.append(Evidence("weights", weights.name, f"catalog: {weights.id}"))
    evidence.append(Evidence("evaluation named", "none", "--evaluation"))
    return (
        Found(
            "keys and values are stored in another type than the weights, and no evaluation "
            "of that is named",
            tuple(evidence),
            "`headrace eval kl MODEL --base ORIGINAL --kv-cache-dtype … --json`, and name "
            "its output with --evaluation; or keep the default KV type",
            "info",
        ),
    )


def attention(subject: Subject) -> Outcome:
    """FlashAttention switched off."""
    engine = subject.engine
    if engine is None:
        return Needs(_ENGINE_NEEDED)
    off, backend = engine.flash_attention, engine.attention_backend
    if off is not None and off.value in ("off", "0", "false", "no"):
        values = engine.kv_type_values
        quantized = values is not None and _QUANTIZED_KV.match(values.value)
        evidence = [off.evidence()]
        if quantized and values is not None:
            evidence.append(values.evidence())
        return (
            Found(
                "quantized values need FlashAttention, which is off: llama-server does not start"
                if quantized
                else "attention writes its whole matrix to memory: slower, and more memory for "
                "long contexts",
                tuple(evidence),
                "--flash-attn auto",
                "error" if quantized else None,
            ),
        )
    if backend is not None and backend.value.upper() in _SLOW_ATTENTION:
        return (
            Found(
                "an attention backend other than FlashAttention is set by hand",
                (backend.evidence(),),
                f"omit {backend.name}: vLLM chooses the fastest that the device supports",
            ),
        )
    return ()


def kernels(subject: Subject) -> Outcome:
    """Settings that keep a runtime from its fast kernels."""
    engine = subject.engine
    if engine is None:
        return Needs(_ENGINE_NEEDED)
    found = []
    if engine.enforce_eager is not None and engine.enforce_eager.value:
        found.append(
            Found(
                "CUDA graphs are off: each kernel of each step is launched by the host",
                (engine.enforce_eager.evidence(),),
                "omit --enforce-eager",
            )
        )
    stated = engine.quantization
    if engine.runtime == "vllm" and stated is not None and stated.value in _PLAIN_KERNELS:
        gain = subject.catalog.techniques["marlin-kernels"].gains
        evidence = [stated.evidence()]
        evidence += [
            Evidence(f"Marlin kernels, {name}", f"{one.low:g} to {one.high:g}",
                     "catalog: marlin-kernels", "times")
            for name, one in gain.items()
            if one.low is not None and one.high is not None
        ][:1]  # fmt: skip
        found.append(
            Found(
                "this name keeps vLLM from its Marlin kernels, which it chooses by default",
                tuple(evidence),
                f"omit --quantization, or write --quantization {_PLAIN_KERNELS[stated.value]}",
            )
        )
    if engine.backend is not None and engine.backend.value == "reference":
        found.append(
            Found("the slow reference backend computes, not the kernels",
                  (engine.backend.evidence(),), "--backend cpu", "error")
        )  # fmt: skip
    level = engine.cpu_level
    if level is not None and level.value in ("portable", "avx2", "avx_vnni", "neon"):
        found.append(
            Found("an instruction level is set by hand, which may be below what the CPU has",
                  (level.evidence(),), "--cpu-level auto", "info")
        )  # fmt: skip
    return tuple(found)


def fitting_quantization(subject: Subject) -> Outcome:
    """16-bit weights on a device that multiplies in FP8."""
    engine, hardware, shape = subject.engine, subject.hardware, subject.shape
    if engine is None:
        return Needs(_ENGINE_NEEDED)
    if engine.quantization is not None or engine.runtime == "headrace":
        return ()
    if hardware is None:
        return subject.need("hardware", planned.HARDWARE_NEEDED)
    if shape is None:
        return subject.need("shape", planned.MODEL_NEEDED)
    if "fp8" not in hardware.native_types:
        return ()
    if subject.files is not None and subject.files.quantization:
        return ()
    kinds = shape.weight_bytes or {"BF16": 1}
    if any(name not in _FLOATS for name in kinds) or subject.quantization not in (None, "bf16"):
        return ()
    if subject.quantization is None and shape.published is not None:
        return ()
    sixteen, eight = (
        weights_quantity(shape, subject.catalog.quantizations[name]).value
        for name in ("bf16", "fp8")
    )
    return (
        Found(
            f"{hardware.name} multiplies in FP8, but the weights are kept at 16 bits",
            (
                Evidence("weights at 16 bits", sixteen, "plan fit, formula F6", "byte"),
                Evidence("weights as FP8", eight, "plan fit, formula F6", "byte"),
                Evidence("types of the device", ", ".join(hardware.native_types),
                         f"catalog: {hardware.id}.native_types"),
            ),
            "--quantization fp8, or a checkpoint in FP8; check with an evaluation",
            "info",
        ),
    )  # fmt: skip


def _bits(subject: Subject, codec: str) -> float | None:
    return next(
        (row.bits_per_weight for row in subject.catalog.quantizations if row.codec == codec), None
    )


CHECKS = (
    Check(
        "L-gguf-in-vllm", "GGUF in vLLM", "warning", ("engine",), "",
        "headrace or llama-server; FP8, AWQ, GPTQ for vLLM", ("qg-959", "vllm"), gguf_in_vllm,
    ),
    Check(
        "L-rtn", "few bits without calibration", "warning", ("engine",),
        "the model's files on this disk, if the config does not state it",
        "AWQ, GPTQ, an imatrix", ("cr-464", "qg-967", "gptq"), uncalibrated,
    ),
    Check(
        "L-mixed-precision", "mixed precision not tested", "info", ("engine",),
        "--evaluation, where one was made", "headrace eval kl", ("cr-478", "kv-quantization"),
        mixed_precision,
    ),
    Check(
        "L-flash-attention", "FlashAttention off", "warning", ("engine",), "",
        "--flash-attn auto", ("cr-458", "qg-971", "flash-attention"), attention,
    ),
    Check(
        "L-kernels", "fast kernels not used", "warning", ("engine",), "",
        "no --enforce-eager, Marlin kernels, --backend cpu", ("qg-961", "marlin-kernels"), kernels,
    ),
    Check(
        "L-quantization", "quantization that does not fit the device", "info", ("engine",),
        "--hardware and the model's shape", "--quantization fp8", ("qg-972", "fp8"),
        fitting_quantization,
    ),
)  # fmt: skip
