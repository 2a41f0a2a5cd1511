"""What was measured of an engine on a model, with what each test had to do: what is fitted to.

The work of every step stands beside its time, so that a file can be fitted again, or checked, where
the model is not at hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from headrace.atomic_file import atomic_file
from headrace.errors import ConfigError
from headrace.plan.step.measured_steps import MeasuredSteps
from headrace.plan.step.step import StepCounter, StepWork

FORMAT = 1
_MOST_BYTES = 64 << 20


class EngineTest(NamedTuple):
    """One test of `headrace bench engine`, whose `Case` it is.

    `batch` requests of `prompt` tokens, each after `depth` in the cache, that each make `new`.
    """

    prompt: int
    new: int
    batch: int
    depth: int

    @property
    def name(self) -> str:
        """As llama-bench writes it, with the batch: pp512+tg128 @ d4096 b8."""
        parts = [f"pp{self.prompt}"] if self.prompt else []
        parts += [f"tg{self.new}"] if self.new else []
        deep = f" @ d{self.depth}" if self.depth else ""
        return "+".join(parts) + deep + f" b{self.batch}"

    @property
    def tokens(self) -> int:
        """Computed while the clock runs."""
        return self.batch * (self.prompt + self.new)

    @property
    def positions(self) -> int:
        """Longest that a request may become."""
        return self.depth + max(1, self.prompt) + self.new + 1


class Steps(msgspec.Struct, frozen=True, array_like=True):
    """A number of steps of the same work, or of that work on average."""

    count: int
    work: StepWork


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A test and how long it took. repeats: of which `tokens_per_s` is the median.

    runs_tokens_per_s: each of them in the order in which they were made; () where only the median,
    the least and the most are known.
    """

    prompt: int
    new: int
    batch: int
    depth: int
    tokens_per_s: float
    least_tokens_per_s: float
    most_tokens_per_s: float
    repeats: int
    steps: tuple[Steps, ...]
    runs_tokens_per_s: tuple[float, ...] = ()

    @property
    def test(self) -> EngineTest:
        return EngineTest(self.prompt, self.new, self.batch, self.depth)

    @property
    def seconds(self) -> float:
        return self.test.tokens / self.tokens_per_s


class MachineId(msgspec.Struct, frozen=True):
    """The machine of a measurement, identified as in telemetry/machine.py."""

    cpu: str
    cpus: int
    memory_bytes: int


class MeasurementSet(msgspec.Struct, frozen=True, kw_only=True):
    """Tests of one model in one runtime on one machine."""

    model: str
    kind: str
    """The storage kind of most of its weights."""
    parameters: int
    weight_bytes: int
    machine: MachineId
    runtime: str
    version: str
    cpu_level: str
    threads: int
    kv_type: str
    step_tokens: int
    """Most of one step."""
    measured_at: str
    """ISO 8601, of the newest row."""
    rows: tuple[Row, ...]
    draft_steps: MeasuredSteps | None = None
    """Steps with drafts, and passes of drafts; None where they were not measured."""

    @property
    def identity(self) -> tuple[str, int]:
        """The model, however its weights are stored; two files may have one name."""
        return self.model, self.parameters

    @property
    def name(self) -> str:
        return f"{self.model} {self.kind}"

    @property
    def setting(self) -> tuple[object, ...]:
        """What has to be the same for a fit: rates depend on each."""
        return (
            self.machine, self.runtime, self.version, self.cpu_level, self.threads, self.kv_type,
        )  # fmt: skip


class _File(msgspec.Struct, frozen=True, kw_only=True):
    headrace_measured: int
    measured: tuple[MeasurementSet, ...]


def kind_of(weight_bytes: dict[str, int]) -> str:
    """The storage kind that most bytes are in: Q4_K of a Q4_K_M file."""
    return max(weight_bytes, key=weight_bytes.__getitem__)


def steps_of(counter: StepCounter, test: EngineTest, step_tokens: int) -> tuple[Steps, ...]:
    """The steps in which the engine computes `test` while the clock runs.

    Requests that decode come first in a step; what is left of `step_tokens` goes to the prompts, in
    their order. Without a prompt one token of each was computed before.
    """
    prompt_end = test.depth + max(1, test.prompt)
    end = prompt_end + test.new
    done = [test.depth if test.prompt else prompt_end] * test.batch
    found: list[Steps] = []
    while min(done) < end:
        decoding = [at for at in done if prompt_end <= at < end]
        prefilling = [index for index, at in enumerate(done) if at < prompt_end]
        if not prefilling and len(decoding) == test.batch and len(set(done)) == 1:
            # All are at the same place: what is left grows by a token a step.
            count = end - done[0]
            found.append(Steps(count, counter.decode(test.batch, done[0] + (count - 1) // 2)))
            break
        left = max(step_tokens - len(decoding), 0)
        work: StepWork | None = None
        if decoding:
            work = counter.decode(len(decoding), sum(decoding) // len(decoding))
        done = [at + (prompt_end <= at < end) for at in done]
        for index in prefilling:
            count = min(left, prompt_end - done[index])
            if not count:
                break
            left -= count
            last = done[index] + count == prompt_end
            piece = counter.prefill(count, done[index], last=last)
            work = piece if work is None else work.beside(piece)
            done[index] += count
        if work is None:
            raise ConfigError(f"step_tokens is {step_tokens}; {test.name} takes no step with it")
        found.append(Steps(1, work))
    return tuple(found)


def write_measured(path: Path, measured: Iterable[MeasurementSet]) -> None:
    """Whole or not at all; OSError where that cannot be. Its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = _File(headrace_measured=FORMAT, measured=tuple(measured))
    with atomic_file(path) as file:
        file.write(msgspec.json.encode(content) + b"\n")


def read_measured(path: Path) -> tuple[MeasurementSet, ...]:
    """Of a file of `write_measured`; raises ConfigError that says what is wrong with it."""
    data = read_bytes(path)
    try:
        found = msgspec.json.decode(data, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}: does not hold measurements of a calibration: {error}"
        ) from error
    if found.headrace_measured != FORMAT:
        raise ConfigError(
            f"{path}: format {found.headrace_measured}; this version reads {FORMAT}: measure again"
        )
    return found.measured


def read_bytes(path: Path) -> bytes:
    """Of a file that somebody names; raises ConfigError."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(
                f"{path}: is above {_MOST_BYTES:,} bytes, too large for measurements of a "
                "calibration"
            )
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error


def is_measured(data: bytes) -> bool:
    """Whether it seems to be of `write_measured`."""
    return b'"headrace_measured"' in data[:200]


def joined(sets: Sequence[MeasurementSet]) -> tuple[MeasurementSet, ...]:
    """Sets of one model and setting as one; of a test that stands twice the later one."""
    found: dict[tuple[object, ...], MeasurementSet] = {}
    for one in sets:
        key = (one.model, one.kind, one.parameters, one.weight_bytes, one.step_tokens, one.setting)
        earlier = found.get(key)
        if earlier is not None:
            rows = {row.test: row for row in (*earlier.rows, *one.rows)}
            one = msgspec.structs.replace(
                one,
                rows=tuple(rows.values()),
                draft_steps=one.draft_steps or earlier.draft_steps,
            )
        found[key] = one
    return tuple(found.values())
