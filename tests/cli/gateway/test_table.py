"""Tables of the gateway's commands on narrow terminals, and costs that nobody knows."""

from __future__ import annotations

import pytest

from headrace.cli.gateway.table import Column, cost_text, print_fitted

COLUMNS = [Column("model", is_name=True), Column("requests"), Column("overhead us", always=False)]


@pytest.mark.parametrize(("width", "shows"), [(80, True), (26, False)])
def test_what_does_not_fit_is_left_out_and_named(
    width: int, shows: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    print_fitted(COLUMNS, [["chat", "1,234,567", "70 / 90"]])
    told = capsys.readouterr().out
    assert "1,234,567" in told
    assert ("70 / 90" in told) is shows
    assert ("--json to see more: overhead us" in told) is not shows


@pytest.mark.parametrize(
    ("nusd", "unknown", "of", "text"),
    [
        (0, 0, None, "0.00"),
        (0, 3, None, "unknown"),
        (1_500_000_000, 0, None, "1.50"),
        (1_500_000_000, 3, None, "≥ 1.50"),
        (1_500_000_000, 0, 3, "0.500000"),
        (0, 3, 3, "unknown"),
        (0, 0, 0, "0.000000"),
    ],
)
def test_a_cost_nobody_knows_is_not_0(nusd: int, unknown: int, of: int | None, text: str) -> None:
    assert cost_text(nusd, unknown, of=of) == text
