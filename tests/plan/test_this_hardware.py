"""What "this" is: the cards a driver names, matched to rows of the catalog, else the CPU."""

from __future__ import annotations

import pytest

from headrace.catalog import Catalog
from headrace.errors import ConfigError
from headrace.plan.machine.this_hardware import named_hardware
from headrace.telemetry.nvidia_cards import NvidiaCard

CATALOG = Catalog.load()


def cards(*names: str) -> list[NvidiaCard]:
    return [NvidiaCard(name, 0) for name in names]


@pytest.mark.parametrize(
    ("driver", "row"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H200", "h200-sxm"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie"),
        ("Tesla T4", "t4"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA B200", "b200-sxm"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
    ],
)
def test_names_of_drivers_are_names_of_rows(driver: str, row: str) -> None:
    assert named_hardware(CATALOG, "this", 1, cards(driver)).name == row


def test_what_is_named_is_taken() -> None:
    many = cards("NVIDIA H200", "NVIDIA H200")
    assert named_hardware(CATALOG, "t4", 7, many).name == "t4"
    assert named_hardware(CATALOG, "cpu", 1, many).name == "this"
    assert named_hardware(CATALOG, "this", 1, ()).note == ""


def test_several_cards_are_told() -> None:
    found = named_hardware(CATALOG, "this", 1, cards("NVIDIA L4", "NVIDIA L4", "Tesla T4"))
    assert found.name == "l4" and "2 x NVIDIA L4: --count 2" in found.note
    assert "not planned: Tesla T4" in found.note
    with pytest.raises(ConfigError, match="count is 3; this machine has 2 of NVIDIA L4"):
        named_hardware(CATALOG, "this", 3, cards("NVIDIA L4", "NVIDIA L4"))


def test_a_card_that_nobody_knows_is_named() -> None:
    found = named_hardware(CATALOG, "this", 1, cards("NVIDIA Graphics Device"))
    assert found.name == "this" and "NVIDIA Graphics Device" in found.note


def test_where_no_count_is_asked_for_all_are_told() -> None:
    found = named_hardware(CATALOG, "this", None, cards("NVIDIA L4", "NVIDIA L4"))
    assert (found.name, found.here) == ("l4", 2)
    assert "2 x NVIDIA L4; --hardware cpu" in found.note
    assert named_hardware(CATALOG, "l4", None, cards("NVIDIA L4")).here == 0
