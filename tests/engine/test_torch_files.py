"""Every file of the engine's tests that computes with a backend does so with torch too."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
COMPUTES = re.compile(r"\b(?:real_ops|load_engine|make_ops|LLM|EngineClient\.start)\(")
BORROWED = {
    "test_exactness.py": "streams",
    "test_planned_ahead.py": "test_planned_ahead",
    "drafts/test_draft_exactness.py": "model_with_head",
}
"""Files whose checks test_torch_backend.py runs on torch, and where it has them from."""
NOT_ON_TORCH = {
    "memory/test_expert_memory.py": "the cache of experts is the kernels' own",
    "memory/test_fit.py": "sizes by the headers of files, which no backend changes",
    "memory/test_weight_memory.py": "what the kernels pack",
    "drafts/test_switching.py": "streams of test_torch_backend.py have drafts that change",
    "drafts/test_refusals.py": "what is refused while a draft is loaded, whatever computes",
    "drafts/test_speculation.py": "a setting that is refused before a backend is made",
    "memory/test_expert_placement.py": "plans; placed experts compute in test_torch_backend.py",
    "process/test_client.py": "messages; a process on torch is in test_torch_faults.py",
    "process/test_loading.py": "the same",
    "process/test_output_buffer.py": "the same",
    "test_repeated_runs.py": "runs of the kernels; those of torch are in test_recorded_steps.py",
}


def test_each_file_has_a_case_on_torch_or_a_reason() -> None:
    without = set()
    for path in sorted(FOLDER.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if path != Path(__file__) and COMPUTES.search(text) and "mark.torch" not in text:
            without.add(path.relative_to(FOLDER).as_posix())
    borrowed = (FOLDER / "test_torch_backend.py").read_text(encoding="utf-8")
    for name, module in BORROWED.items():
        assert f"from tests.engine.{module} import" in borrowed
        without.remove(name)
    assert without == set(NOT_ON_TORCH)
