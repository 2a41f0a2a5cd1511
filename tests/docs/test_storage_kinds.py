"""docs/storage-kinds.md: cells are tests, and what is missing has a reason.

That the page is current is `test_pages.test_the_generated_pages_are_current`.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from benchmarks.loaded_elsewhere import Recording as LoadedRecording
from benchmarks.storage_kinds import RECORDING, Recording, command_of, kind_names
from headrace.weights.codecs import CODECS
from tests import proofs as proofs_of_tests
from tests.docs.pages import ROOT
from tests.proofs import Proof, proofs
from tools import kinds_page


@pytest.fixture(scope="module")
def found() -> list[Proof]:
    return list(proofs())


def test_every_kind_is_shown_to_be_read_and_run(found: list[Proof]) -> None:
    shown = {(proof.column, proof.group, proof.kind) for proof in found}
    every = {("GGUF", name) for name in CODECS}
    every |= {(group, name) for group, names in kinds_page.LAYOUTS.items() for name in names}
    for column in ("read", "run"):
        assert {(group, kind) for where, group, kind in shown if where == column} == every
    assert all((ROOT / proof.test.partition("::")[0]).is_file() for proof in found)


def test_every_encoder_is_shown_to_make_its_kind(found: list[Proof]) -> None:
    made = {proof.kind for proof in found if (proof.column, proof.group) == ("made", "GGUF")}
    assert made == {name for name, codec in CODECS.items() if codec.can_encode}


def test_recordings_have_every_kind() -> None:
    shares = msgspec.json.decode(kinds_page.SHARES.read_bytes(), type=Recording)
    assert [share.kind for share in shares.kinds] == kind_names()
    loaded = msgspec.json.decode(kinds_page.LOADED.read_bytes(), type=LoadedRecording)
    for result in loaded.kinds:
        # A matrix or more was of the kind, and tokens that differ were nearly as likely.
        assert result.matrices and result.tokens == 64 and result.largest_gap < 0.1
    assert {result.kind for result in loaded.kinds} == {
        name for name, codec in CODECS.items() if codec.can_encode
    }


def test_a_recorded_command_names_no_place_of_one_machine() -> None:
    command = "python -m benchmarks.storage_kinds"
    for out in ("/tmp/x/shares.json", RECORDING):
        for words in (["--out", out], [f"--out={out}"]):
            recorded = command_of([*words, "--kind", "Q4_K"], out)
            assert recorded.startswith(command) and "/tmp" not in recorded
            assert RECORDING in recorded and recorded.endswith("--kind Q4_K")
    shares = msgspec.json.decode(kinds_page.SHARES.read_bytes(), type=Recording)
    assert shares.command == f"{command} --out {RECORDING}"
    assert kinds_page.SHARES == ROOT / RECORDING


def test_a_kind_without_a_test_is_no_cell(
    found: list[Proof], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = [proof for proof in found if (proof.column, proof.kind) != ("made", "IQ4_XS")]
    monkeypatch.setattr(kinds_page, "proofs", lambda: kept)
    missing = {**kinds_page.MISSING, ("made", "GGUF"): "Its test is gone."}
    monkeypatch.setattr(kinds_page, "MISSING", missing)
    page = kinds_page.kinds_page()
    (row,) = (line for line in page.splitlines() if line.startswith("| IQ4_XS | 4.25 |"))
    assert row.split(" | ")[-2] == "—"
    assert "- Not made: IQ4_XS. Its test is gone." in page


def test_a_gap_without_a_reason_stops_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds_page, "MISSING", {})
    with pytest.raises(kinds_page.GapError, match="column 'made' has gaps among folders"):
        kinds_page.kinds_page()
    monkeypatch.setattr(kinds_page, "SLOW", kinds_page.SLOW[1:])
    with pytest.raises(kinds_page.GapError, match=r"\['IQ1_M', .* are below 80%"):
        kinds_page.kinds_page()


def test_a_mark_names_a_column_and_a_parameter() -> None:
    module = ModuleType("tests.marked")

    def test_it(name: str) -> None:
        del name

    test_it.__module__ = module.__name__
    vars(module)["test_it"] = test_it
    place = Path("tests/test_marked.py")
    parametrised = pytest.mark.parametrize("name", ["A", pytest.param("B")])
    parametrised(pytest.mark.proves("read", "a twin", of="name", but={"B": "another"})(test_it))
    got = list(proofs_of_tests._proofs_of(module, place))
    assert [(proof.kind, proof.against) for proof in got] == [("A", "a twin"), ("B", "another")]
    for mark, message in (
        (pytest.mark.proves("read", "a twin", of="kind"), "no parameter 'kind'"),
        (pytest.mark.proves("eaten", "a twin", of="name"), "proves 'eaten', which is none of"),
    ):
        del vars(test_it)["pytestmark"]
        parametrised(mark(test_it))
        with pytest.raises(ValueError, match=message):
            list(proofs_of_tests._proofs_of(module, place))
