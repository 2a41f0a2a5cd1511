"""Devices: links between them, several taken as one, weights kept beside them, what binds."""

from __future__ import annotations

from headrace.plan.lint import planned
from headrace.plan.lint.engine_setup import EngineSetup
from headrace.plan.lint.finding import Check, Evidence, Found, Needs, Outcome
from headrace.plan.lint.subject import Subject
from headrace.plan.lint.threshold import threshold
from headrace.plan.memory.weights_memory import weights_quantity
from headrace.plan.model.model_shape import ModelShape
from headrace.telemetry.readings import growth

_ENGINE_NEEDED = "an engine's config"
_CONTEXT_TOKENS = 2048
_SMALLER_KINDS = ("q8-0", "q6-k", "q5-k-m", "q4-k-m", "q3-k-m")
_SMALLER_GPU_KINDS = ("fp8", "awq")


def tensor_over_pcie(subject: Subject) -> Outcome:
    """Tensor parallelism where devices have no fast link."""
    engine, hardware = subject.engine, subject.hardware
    if engine is None:
        return Needs(_ENGINE_NEEDED)
    tensor = engine.tensor_parallel
    if tensor is None or tensor.value < 2:
        return ()
    if hardware is None:
        return subject.need("hardware", planned.HARDWARE_NEEDED)
    link = hardware.link
    if link is None and hardware.pcie_bytes_per_s is None:
        return Needs(f"the link of {hardware.name}: the catalog does not state it")
    if link is not None and not link.startswith("PCIe"):
        return ()
    speed = hardware.link_bytes_per_s or hardware.pcie_bytes_per_s or 0.0
    evidence = [tensor.evidence("devices"),
                Evidence(f"link of {hardware.name}", link or "PCIe", f"catalog: {hardware.id}"),
                Evidence("of each device and direction", speed / 1e9, f"catalog: {hardware.id}",
                         "GB/s")]  # fmt: skip
    found = planned.replica(subject)
    if not isinstance(found, Needs):
        batch = planned.usual_batch(subject)
        step = found.model.decode_step(batch[0] if batch else 1, _CONTEXT_TOKENS)
        if step.parts.communication_s > 0:
            share = step.parts.communication_s / step.seconds
            evidence.append(
                Evidence("of a decode step, spent on links", round(share, 3),
                         "plan speed: two all-reduces a layer", "share"),
            )  # fmt: skip
    return (
        Found(
            "each layer of each token waits twice for PCIe",
            tuple(evidence),
            f"--pipeline-parallel-size {tensor.value} --tensor-parallel-size 1, replicas of a "
            "smaller quantization, or devices with NVLink",
        ),
    )


def several_as_one(subject: Subject) -> Outcome:
    """Layers shared by devices though each could hold the model by itself."""
    engine, shape = subject.engine, subject.shape
    if engine is None:
        return Needs(_ENGINE_NEEDED)
    if engine.devices < 2:
        return ()
    if shape is None:
        return subject.need("shape", planned.MODEL_NEEDED)
    batch = planned.usual_batch(subject)
    if batch is None:
        return Needs("the batch: state --max-num-seqs, or add a run with /metrics")
    together, alone = planned.replica(subject), planned.replica(subject, devices=1)
    if isinstance(together, Needs):
        return together
    if isinstance(alone, Needs):
        return alone
    number, devices = batch[0], engine.devices
    each = -(-number // devices)
    if not alone.memory(_CONTEXT_TOKENS, each).fits:
        return ()
    shared = number / together.model.decode_step(number, _CONTEXT_TOKENS).seconds
    apart = devices * each / alone.model.decode_step(each, _CONTEXT_TOKENS).seconds
    one = number / alone.model.decode_step(number, _CONTEXT_TOKENS).seconds
    setting = engine.tensor_parallel or engine.pipeline_parallel
    assert setting is not None
    evidence = (
        setting.evidence("devices"),
        Evidence(batch[1], number, batch[2], "requests"),
        Evidence(f"{devices} devices together", round(shared), "plan speed, T4", "tokens/s"),
        Evidence(f"{devices} replicas of {each} requests each", round(apart), "plan speed, T4",
                 "tokens/s"),
        Evidence("one device with all requests", round(one), "plan speed, T4", "tokens/s"),
    )  # fmt: skip
    if apart >= shared * (1 + threshold(subject, "gain-of-apart")):
        return (
            Found(
                f"{devices} devices share each layer, and as many replicas would be faster: each "
                "device holds the model by itself",
                evidence,
                f"--tensor-parallel-size 1 and {devices} replicas (vLLM: --data-parallel-size "
                f"{devices})",
            ),
        )
    # What is there to do is known of a run; of a bound only what it allows.
    full = subject.run is None and alone.memory(_CONTEXT_TOKENS, number).fits
    if not full or shared >= threshold(subject, "used-share") * devices * one:
        return ()
    return (
        Found(
            f"{devices} devices are {shared / one:.1f} times as fast as one at that batch, and one "
            "holds the model by itself",
            evidence,
            "more requests at once (--max-num-seqs), or fewer devices in a replica and more "
            "replicas; `headrace plan speed --tensor-parallel` compares",
            "info",
        ),
    )


def tensor_missing(subject: Subject) -> Outcome:
    """One device is used of several, and the model does not fit on it."""
    engine = subject.engine
    if engine is None:
        return Needs(_ENGINE_NEEDED)
    if engine.runtime == "headrace" or engine.devices > 1:
        return ()
    if engine.offload_gib is not None or engine.cpu_experts is not None:
        return ()
    if engine.gpu_layers is not None and engine.gpu_layers.value.isdigit():
        return ()
    context = planned.request_context(subject)
    plan = planned.memory(subject, min(context.value, _CONTEXT_TOKENS) if context else 2048, 1)
    if isinstance(plan, Needs):
        return plan
    if plan.fits or (engine.runtime == "llama.cpp" and subject.devices > 1):
        return ()
    needed = 2
    while needed <= 64:
        more = planned.memory(subject, _CONTEXT_TOKENS, 1, devices=needed)
        if isinstance(more, Needs) or more.fits:
            break
        needed *= 2
    evidence = [
        Evidence("needed", plan.needed.value, "plan fit, figure needed", "byte"),
        Evidence(f"usable of {plan.place.name}", plan.usable.value, "plan fit, figure usable",
                 "byte"),
        Evidence("devices configured to be used", 1, engine.where),
    ]  # fmt: skip
    remedy = f"--tensor-parallel-size {needed}, or fewer bits of the weights"
    if needed > 64:
        remedy = "fewer bits of the weights, or larger devices"
    return (Found("the model does not fit on the one device", tuple(evidence), remedy),)


def offload(subject: Subject) -> Outcome:
    """Weights beside the GPU where fewer bits would fit on it."""
    engine, shape = subject.engine, subject.shape
    if engine is None:
        return Needs(_ENGINE_NEEDED)
    setting = engine.offload_gib or engine.cpu_experts or engine.gpu_layers
    if setting is None or (engine.offload_gib is not None and engine.offload_gib.value == 0):
        return ()
    if setting is engine.gpu_layers and not engine.gpu_layers.value.lstrip("-").isdigit():
        return ()  # auto, all
    if shape is None:
        return subject.need("shape", planned.MODEL_NEEDED)
    weights = weights_quantity(shape, planned.weight_kind(subject)).value
    beside = _bytes_beside(engine, shape, weights)
    if beside is not None and beside <= 0:
        return ()
    context = planned.request_context(subject)
    tokens = context.value if context else _CONTEXT_TOKENS
    kinds = _SMALLER_KINDS if engine.runtime == "llama.cpp" else _SMALLER_GPU_KINDS
    for name in kinds:
        kind = subject.catalog.quantizations[name]
        smaller = weights_quantity(shape, kind).value
        if smaller >= weights:
            continue
        plan = planned.memory(subject, tokens, 1, weights=kind)
        if isinstance(plan, Needs):
            return plan
        if not plan.fits:
            continue
        evidence = [setting.evidence(),
                    Evidence("weights", weights, "plan fit, figure weights", "byte"),
                    Evidence(f"weights as {kind.name}, which fit whole", smaller, "plan fit",
                             "byte")]  # fmt: skip
        hardware = subject.hardware
        if beside is not None:
            evidence.append(Evidence("kept outside the GPU", beside, "computed", "byte"))
        if hardware and hardware.pcie_bytes_per_s and hardware.bandwidth_bytes_per_s and beside:
            evidence += [
                Evidence("minimum per token, reading the rest over PCIe",
                         round(beside / hardware.pcie_bytes_per_s, 4),
                         f"computed, catalog: {hardware.id}", "s"),
                Evidence(f"minimum per token, {kind.name} from the GPU's memory",
                         round(smaller / hardware.bandwidth_bytes_per_s, 4),
                         f"computed, catalog: {hardware.id}", "s"),
            ]  # fmt: skip
        return (
            Found(
                f"weights are kept outside the GPU, and as {kind.name} all of them would fit on it",
                tuple(evidence),
                f"the model as {kind.name}, with all layers on the GPU",
            ),
        )
    return ()


def flops(subject: Subject) -> Outcome:
    """Multiplying made faster where reading is what takes the time."""
    run, engine = subject.run, subject.engine
    if run is not None:
        moved, done, seconds = (
            growth(run.readings, name) for name in ("bytes", "operations", "stepped")
        )
        limits = run.readings[-1].values if run.readings else {}
        read, compute = limits.get("read_limit"), limits.get("compute_limit")
        if moved and done and seconds and read and compute:
            mbu, mfu = moved / seconds / read, done / seconds / compute
            if mbu < threshold(subject, "bandwidth-bound") or done / moved >= compute / read:
                return ()
            where = f"{run.where}/metrics.jsonl"
            return (
                Found(
                    "steps are bound by reading: faster multiplication gains nothing",
                    (
                        Evidence("operations per byte read", round(done / moved, 2), where),
                        Evidence("of the machine's ridge", round(compute / read, 2), where),
                        Evidence("MBU", round(mbu, 3), where, "share"),
                        Evidence("MFU", round(mfu, 3), where, "share"),
                    ),
                    "fewer bytes: smaller weights and KV types, or a larger batch; kernels "
                    "that multiply faster gain nothing",
                    "info",
                ),
            )
    if engine is None:
        return Needs("a run of a headrace server with /metrics, or an engine's config")
    if engine.compilation is None:
        if run is None and engine.runtime == "headrace":
            return Needs("a run with the server's /metrics")
        return ()
    batch = planned.usual_batch(subject)
    if batch is None:
        return Needs("the batch: state --max-num-seqs")
    found = planned.replica(subject)
    if isinstance(found, Needs):
        return found
    step = found.model.decode_step(batch[0], _CONTEXT_TOKENS)
    kind = planned.weight_kind(subject)
    if step.bottleneck != "bandwidth" or kind is None or (kind.bits_per_weight or 0) < 16:
        return ()
    return (
        Found(
            "kernels are tuned while decoding is bound by reading 16-bit weights",
            (
                engine.compilation.evidence(),
                Evidence(batch[1], batch[0], batch[2], "requests"),
                Evidence("reading, of a step", step.parts.bandwidth_s, "plan speed", "s"),
                Evidence("multiplying, of a step", step.parts.compute_s, "plan speed", "s"),
                Evidence("bits of a weight", kind.bits_per_weight or 0, f"catalog: {kind.id}"),
            ),
            "--quantization fp8 (or awq): half the bytes or a quarter",
            "info",
        ),
    )


def _bytes_beside(engine: EngineSetup, shape: ModelShape, weights: float) -> float | None:
    """Weights that are not on the GPU; None where that cannot be told."""
    if engine.offload_gib is not None:
        return min(weights, engine.offload_gib.value * 2**30)  # vLLM's flag is in GiB
    if engine.gpu_layers is not None and engine.gpu_layers.value.lstrip("-").isdigit():
        layers = int(engine.gpu_layers.value)
        if layers < 0:
            return 0.0
        return weights * max(0, shape.num_layers - layers) / shape.num_layers
    cpu = engine.cpu_experts
    if cpu is None:
        return None
    total = shape.parameters.total
    if cpu.value.isdigit() and shape.num_layers:
        part = min(1.0, int(cpu.value) / shape.num_layers)
        return weights * shape.parameters.experts / total * part
    return weights * shape.parameters.experts / total if cpu.value == "on" else None


CHECKS = (
    Check(
        "L-tp-over-pcie", "tensor parallelism over PCIe", "warning", ("engine",), "--hardware",
        "--pipeline-parallel-size, NVLink", ("cr-353", "tensor-parallelism"), tensor_over_pcie,
    ),
    Check(
        "L-multi-gpu", "several GPUs taken as one", "warning", ("engine", "run"),
        "--hardware, the model's shape, the batch", "--tensor-parallel-size 1 and replicas",
        ("cr-472", "tensor-parallelism"), several_as_one,
    ),
    Check(
        "L-tp-missing", "model too large for one device", "error", ("engine",),
        "--hardware and the model's shape", "--tensor-parallel-size", ("qg-976",), tensor_missing,
    ),
    Check(
        "L-offload", "offload slower than smaller quantization", "warning", ("engine",),
        "--hardware and the model's shape", "a smaller quantization, all layers on the GPU",
        ("bigger-model-fewer-bits",), offload,
    ),
    Check(
        "L-flops", "FLOPs optimised while bandwidth binds", "info", ("run", "engine"),
        "a headrace server's /metrics in the run; or --hardware, model and --max-num-seqs",
        "fewer bytes, larger batches", ("cr-456", "decode-bound", "ridge-h100"), flops,
    ),
)  # fmt: skip
