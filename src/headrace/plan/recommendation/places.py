"""Where a model may run and with which program and kind of weights, whatever the model is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.catalog import Catalog
from headrace.catalog.rows import Hardware, Quantization, Runtime
from headrace.errors import ConfigError
from headrace.plan.machine.device import device_of
from headrace.plan.machine.hardware_memory import THIS
from headrace.plan.machine.this_hardware import CPU, named_hardware
from headrace.plan.recommendation.advice import is_server
from headrace.plan.recommendation.breach import Breach, RuledOut
from headrace.plan.recommendation.money import HourPrice, hour_price
from headrace.plan.recommendation.question import Question
from headrace.telemetry.nvidia_cards import NvidiaCard

# Programs for which commands are written, and kinds in which checkpoints are to be had.
RUNTIMES = ("headrace", "vllm", "llama.cpp")
KINDS = (
    "bf16", "fp8", "int8", "awq", "nvfp4", "mxfp4", "q8-0", "q5-k-m", "q4-k-m", "iq4-xs", "q3-k-m",
)  # fmt: skip
_COUNTS = (1, 2, 4, 8)
_BACKENDS = {"NVIDIA": "cuda", "AMD": "rocm", "Apple": "metal", "Google": "tpu", "Intel": "vulkan"}
_FORMATS = {"fp8": "FP8", "awq": "AWQ", "gptq": "GPTQ", "nvfp4": "NVFP4"}


@dataclass(frozen=True, kw_only=True)
class HardwareCandidate:
    """Hardware that is looked at."""

    name: str
    title: str
    row: Hardware | None
    """Row of the device; None for this machine's CPU."""
    counts: tuple[int, ...]
    """Devices of a replica that are tried, rising."""
    price: HourPrice | None
    """None if no price is known."""
    here: int | None = None
    """Devices that this machine has, which are all there are; None for what is rented or bought."""


@dataclass(frozen=True, kw_only=True)
class RuntimeCandidate:
    """A site with the program and the kind of weights that can run on it."""

    site: HardwareCandidate
    runtime: Runtime
    kind: Quantization


def sites(
    catalog: Catalog, question: Question, measured: bool, cards: Sequence[NvidiaCard] = ()
) -> tuple[list[HardwareCandidate], list[RuledOut]]:
    """The hardware that is named, else all that is priced (at the edge: all of the edge).

    measured: whether limits of this machine's CPU are known; it is looked at then. cards: of this
    machine; where the catalog has them, "this" is them. Raises CatalogError for a name that is
    none.
    """
    found, out = [], []
    named = list(dict.fromkeys(question.hardware)) or [
        *([THIS] if cards else ()), *([CPU] if measured else ()),
        *(row.id for row in catalog.hardware if row.made_of is None),
    ]  # fmt: skip
    for name in named:
        known = named_hardware(catalog, name, None, cards)
        if known.here:
            site, breach = _cards_here(catalog, question, known.name, known.here)
            if breach is None:
                found.append(site)
            else:
                out.append(_out(site.title, breach))
            continue
        if known.name == THIS:
            if any(one.row is None for one in found):
                continue
            if not measured:
                text = "it has not been measured: run `headrace bench machine`"
                out.append(_out("this machine", Breach(rule="rule-hardware-known", text=text)))
                continue
            found.append(
                HardwareCandidate(name=THIS, title="this machine", row=None, counts=(1,),
                     price=hour_price(catalog, None), here=1)
            )  # fmt: skip
            continue
        row, counts = _device(catalog, name)
        breach = _unfit(catalog, question, row)
        if breach is not None:
            out.append(_out(row.name, breach))
            continue
        price = hour_price(catalog, row)
        if not question.hardware and price is None and not question.edge:
            text = "no price of it is known; --hardware considers it all the same"
            out.append(_out(row.name, Breach(rule="rule-price", text=text)))
            continue
        found.append(
            HardwareCandidate(name=row.id, title=row.name, row=row, counts=counts, price=price)
        )
    return found, out


def settings(
    catalog: Catalog, question: Question, found: list[HardwareCandidate]
) -> tuple[list[RuntimeCandidate], list[RuledOut]]:
    """Every program and kind on every site, and those that cannot be.

    Raises CatalogError for a name that is no kind.
    """
    kinds = [catalog.quantizations[id] for id in question.quantizations or KINDS]
    able: list[RuntimeCandidate] = []
    out: dict[str, RuledOut] = {}
    for site in found:
        for runtime in (catalog.runtimes[id] for id in RUNTIMES):
            breach = _without_backend(site, runtime)
            if breach is not None:
                name = f"{runtime.name} on {site.title}"
                out[name] = _out(name, breach)
                continue
            for kind in kinds:
                name = f"{kind.name} by {runtime.name}"
                breach = _few_bits(question, kind) or _unread(kind, runtime)
                if breach is None and (breach := _not_native(catalog, kind, site)):
                    name = f"{kind.name} on {site.title}"
                if breach is None:
                    able.append(RuntimeCandidate(site=site, runtime=runtime, kind=kind))
                else:
                    out[name] = _out(name, breach)
    return able, list(out.values())


def _out(name: str, breach: Breach) -> RuledOut:
    return RuledOut(name=name, breaches=(breach,))


def _cards_here(
    catalog: Catalog, question: Question, id: str, many: int
) -> tuple[HardwareCandidate, Breach | None]:
    """The cards of this machine, paid for already; and why they cannot be taken."""
    row = catalog.hardware[id]
    site = HardwareCandidate(
        name=f"{THIS}-{id}", title=f"{row.name} of this machine", row=row,
        counts=tuple(count for count in _COUNTS if count <= many),
        price=hour_price(catalog, None), here=many,
    )  # fmt: skip
    return site, _unfit(catalog, question, row)


def _device(catalog: Catalog, name: str) -> tuple[Hardware, tuple[int, ...]]:
    row = catalog.hardware[name]
    if row.made_of is not None:
        return catalog.hardware[row.made_of], (row.count or 1,)
    most = row.devices_per_machine or (2 if row.category == "gpu" else 1)
    return row, tuple(count for count in _COUNTS if count <= most)


def _unfit(catalog: Catalog, question: Question, row: Hardware) -> Breach | None:
    if question.edge and is_server(row):
        return Breach(rule="rule-edge", text="is data-centre hardware")
    if not (row.usable_memory_bytes or row.memory_bytes):
        return Breach(rule="rule-hardware-known", text="its memory is not stated")
    try:
        device, _ = device_of(catalog, row.id)
        device.peak("bf16")
    except ConfigError as error:
        return Breach(rule="rule-hardware-known", text=str(error).partition(":")[0])
    return None


def _without_backend(site: HardwareCandidate, runtime: Runtime) -> Breach | None:
    needed = "cpu"
    if site.row is not None and site.row.category != "cpu":
        needed = _BACKENDS.get(site.row.vendor or "", "")
    if needed in runtime.backends:
        return None
    there = ", ".join(runtime.backends)
    needs = needed or f"one for {(site.row and site.row.vendor) or 'an unknown maker'}"
    return Breach(rule="rule-backend", text=f"needs {needs}; it has {there}")


def _few_bits(question: Question, kind: Quantization) -> Breach | None:
    least, bits = question.least_bits, kind.bits_per_weight
    if least is None or (bits is not None and bits >= least):
        return None
    return Breach(rule="rule-least-bits", text=f"{bits} bits a weight, below {least:g}")


def _format(kind: Quantization, runtime: Runtime) -> str:
    if kind.family in ("gguf", "gguf-mix"):
        return "GGUF"
    if kind.family == "float":
        return "safetensors" if "safetensors" in runtime.formats else "GGUF"
    return _FORMATS.get(kind.id, kind.name)


def _unread(kind: Quantization, runtime: Runtime) -> Breach | None:
    needed = _format(kind, runtime)
    if needed not in runtime.formats and runtime.id not in kind.runtimes:
        there = ", ".join(runtime.formats)
        return Breach(
            rule="rule-format", text=f"{needed} is not among the formats it reads: {there}"
        )
    if runtime.not_for == needed:
        return Breach(rule="rule-not-for", text=f"it is not for {needed}")
    return None


def _not_native(catalog: Catalog, kind: Quantization, site: HardwareCandidate) -> Breach | None:
    """Kinds whose products are of 8 or 4 bits need a device with a peak for them."""
    wanted = kind.activation_type
    if kind.family != "gpu" or wanted in (None, "fp16", "bf16") or site.row is None:
        return None
    device, _ = device_of(catalog, site.row.id)
    try:
        device.peak(wanted or "bf16")
    except ConfigError:
        there = ", ".join(device.peak_operations_per_s)
        return Breach(rule="rule-native", text=f"has no {wanted} products, only {there}")
    return None
