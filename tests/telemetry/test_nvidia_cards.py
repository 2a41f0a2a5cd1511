"""What nvidia-smi tells of this machine's cards, by a program that stands in for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.telemetry.nvidia_cards import NvidiaCard, nvidia_cards


def stand_in(folder: Path, text: str) -> dict[str, str]:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    program.chmod(0o755)
    return {"PATH": str(folder)}


def test_cards_are_read_with_their_memory(tmp_path: Path) -> None:
    env = stand_in(tmp_path, "echo 'NVIDIA H200, 143771'\necho 'Orin (nvgpu), [N/A]'")
    assert nvidia_cards(env) == (
        NvidiaCard("NVIDIA H200", 143771 * 2**20),
        NvidiaCard("Orin (nvgpu)", 0),
    )


def test_it_is_asked_for_names_and_memory(tmp_path: Path) -> None:
    env = stand_in(tmp_path, 'echo "$1 $2, 1"')
    (card,) = nvidia_cards(env)
    assert card.name == "--query-gpu=name,memory.total --format=csv,noheader,nounits"


@pytest.mark.parametrize("text", ["exit 9", "", "echo NVIDIA-SMI has failed; exit 1"])
def test_without_an_answer_there_are_no_cards(tmp_path: Path, text: str) -> None:
    assert nvidia_cards(stand_in(tmp_path, text)) == ()
    assert nvidia_cards({"PATH": str(tmp_path / "nowhere")}) == () == nvidia_cards({})
