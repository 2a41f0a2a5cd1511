"""A profile of steps finds the operations that they are made of."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.profile_step import OPERATIONS, Column, Peaks, Profile, main, peaks, rows

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.process
def test_steps_have_their_products_and_attention() -> None:
    """Steps that are repeated call no operation, so the clocked ones have to be computed anew."""
    command = f"{sys.executable} benchmarks/profile_step.py --requests 2 --prompts 512 --steps 3"
    words = [*command.split(), "--json"]
    run = subprocess.run(words, cwd=ROOT, capture_output=True, timeout=120)
    assert run.returncode == 0, run.stderr.decode()
    decoding, reading = json.loads(run.stdout)
    assert decoding["name"] == "2 decoding"
    assert reading["name"] == "512 of a prompt behind 512"
    for column in (decoding, reading):
        operations = column["operations"]
        assert operations["linear"] > 0
        assert operations["paged_attention"] > 0
        assert 0 < column["attention"] < column["products"] and column["floor_s"] > 0
        assert column["rest_s"] > 0 and all(peak > 0 for peak in column["clocked_peaks"])
        assert sum(operations.values()) + column["rest_s"] == pytest.approx(column["clocked_s"])


def test_depths_are_of_whole_steps(capsys: pytest.CaptureFixture[str]) -> None:
    """The step behind another depth would be one of fewer tokens."""
    with pytest.raises(SystemExit):
        main(["--prompts", "0", "100"])
    assert "--prompts 100: no multiple of 512" in capsys.readouterr().err


def test_the_table_ends_with_the_step_that_its_parts_sum_to() -> None:
    plain = Column("1 decoding", 10**9, 10**9, 10**6, Peaks(1e11, 1e12, 1e12), 0.02, {})
    operations = {**dict.fromkeys(OPERATIONS, 0.0), "linear": 0.021, "sample": 0.003}
    clocked = plain._replace(step_s=0.025, operations=operations)
    table = {str(name): cell for name, cell in rows([Profile(plain, clocked)])}
    assert table["a step, ms"] == "20.0"
    assert list(table.items())[-4:] == [
        ("`linear`, ms", "21.00"),
        ("`sample`, ms", "3.00"),
        ("the rest, ms", "1.00"),
        ("a step with a clock, ms", "25.00"),
    ]


@pytest.mark.parametrize(
    ("rates", "products", "attention"),
    [
        ({"f32": 2.0, "int8": 8.0}, 2.0, 2.0),
        ({"f32": 2.0, "bf16": 4.0, "int8": 8.0}, 4.0, 4.0),
        ({"f32": 2.0, "bf16": 32.0, "int8": 64.0, "bf16_pairs": 4.0}, 32.0, 4.0),
    ],
    ids=["avx512", "avx512_bf16", "amx"],
)
def test_attention_has_the_peak_of_what_it_multiplies_by(
    rates: dict[str, float], products: float, attention: float
) -> None:
    class Level:
        """A backend of a level with these rates."""

        level, num_threads = "any", 1
        read_bandwidth = staticmethod(float)
        peak_rate = staticmethod(rates.get)

    found = peaks(Level(), "BF16", "bf16")
    assert (found.products_per_s, found.attention_per_s) == (products, attention)
    assert peaks(Level(), "BF16", "f32").attention_per_s == rates["f32"]
