"""What a report counts of files, which of them are on the front, and its page."""

from __future__ import annotations

import msgspec
import pytest

from headrace.cli.eval.report_page import quality_page, quality_sheet
from headrace.eval.divergence import Divergence
from headrace.eval.report import (
    FileFacts,
    FileMeasurement,
    QualityReport,
    ReportedFile,
    Speed,
    file_facts,
    with_front,
)
from tests.tiny import tiny_checkpoint

DIVERGENCE = Divergence(
    kl_mean=0.01, kl_error=0.001, kl_median=0.005, kl_median_error=0.0005, kl_max=2.0,
    kl_max_error=0.4, kl_quantiles={"0.999": 0.7}, kl_quantile_errors={"0.999": 0.1},
    same_top=0.95, same_top_error=0.01, p_change_mean=0.0, p_change_rms=0.02, base_perplexity=9.0,
    perplexity=9.1, perplexity_ratio=1.0111, perplexity_ratio_error=0.002, windows=40, context=512,
    tokens=10_200, blocks=40,
)  # fmt: skip


def facts(name: str, nbytes: int) -> FileFacts:
    return FileFacts(
        name=name, nbytes=nbytes, weights=nbytes, bits_per_weight=8.0, kinds={"Q8_0": nbytes}
    )


def measured(name: str, nbytes: int, kl_mean: float, speed: Speed | None = None) -> FileMeasurement:
    apart = msgspec.structs.replace(DIVERGENCE, kl_mean=kl_mean)
    return FileMeasurement(facts=facts(name, nbytes), divergence=apart, speed=speed)


def report(files: list[FileMeasurement], speed: Speed | None = None) -> QualityReport:
    base = ReportedFile(facts=facts("base", 9_000_000), divergence=None, speed=speed, front=False)
    return QualityReport(
        text="text.py", base=base, files=with_front(files), measured_at="2026-11-29T00:00:00Z",
        machine="a processor", version="1",
    )  # fmt: skip


def test_a_file_is_beaten_by_one_no_larger_and_no_further() -> None:
    files = with_front(
        [
            measured("large", 300, 0.001),
            measured("middle", 200, 0.02),
            measured("as large, further", 200, 0.03),
            measured("small", 100, 0.02),
        ]
    )
    assert [file.facts.name for file in files] == ["small", "middle", "as large, further", "large"]
    assert [file.front for file in files] == [True, False, False, True]


def test_equal_files_are_both_on_the_front() -> None:
    assert all(file.front for file in with_front([measured("a", 5, 0.1), measured("b", 5, 0.1)]))


def test_bits_of_a_weight_count_all_that_is_stored() -> None:
    checkpoint = tiny_checkpoint(codec="Q8_0", layers=1)
    found = file_facts("tiny", checkpoint)
    tensors = checkpoint.tensors.values()
    assert found.nbytes == sum(len(tensor.data.reshape(-1)) for tensor in tensors)
    assert 8.5 < found.bits_per_weight < 9, "8.5 of Q8_0, and norms as F32"
    assert sum(found.kinds.values()) == found.nbytes
    assert next(iter(found.kinds)) == "Q8_0"


@pytest.mark.parametrize("mbu", (None, 0.83))
def test_the_table_has_the_columns_that_were_measured(mbu: float | None) -> None:
    speed = Speed(tokens_per_s=100.0, least_tokens_per_s=99.0, most_tokens_per_s=101.0, mbu=mbu)
    sheet = quality_sheet(report([measured("a", 5, 0.1, speed)], speed))
    assert ("MBU" in sheet.columns) is (mbu is not None)
    assert len(sheet.rows) == 2 and all(len(row) == len(sheet.columns) for row in sheet.rows)
    assert any("bench machine" in note for note in sheet.notes) is (mbu is None)
    assert "tokens/s" not in quality_sheet(report([measured("a", 5, 0.1)])).columns


def test_the_page_has_every_file_and_loads_nothing() -> None:
    page = quality_page(report([measured("first<b>", 5, 0.1), measured("second", 6, 0.0)]))
    assert "first&lt;b&gt;" in page and "second" in page and "first<b>" not in page
    assert page.count("<svg") >= 3, "size beside mean, quantile and perplexity"
    assert "prefers-color-scheme:dark" in page
    assert "http://" not in page and "https://" not in page and "src=" not in page
