"""Model cards: the figures of the evidence, in words that fit the member."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.training.toy_training import SHAPE
from training.cards import schedule
from training.cards.card import gather, render, renewed
from training.members import MEMBERS
from training.models.config import NOTE_KEY
from training.models.head_config import NORMED, HeadConfig
from training.models.moe_config import MoEConfig
from training.stages import exported, exported_gguf

FIGURES = {
    "n_documents": 12,
    "n_bytes": 34_567,
    "n_tokens": 8_901,
    "nats_per_token": 2.1,
    "perplexity": 8.17,
    "bits_per_byte": 0.8765,
    "bits_per_byte_error": 0.0123,
    "top1": 0.5432,
    "top5": 0.7654,
}
MOE = MoEConfig(**{**asdict(SHAPE), "moe_intermediate_size": 32})
HEAD = HeadConfig(feature_layers=(0, 1, 2), vocab_size=30)
MTP = HeadConfig(kind="mtp", feature_layers=(NORMED,), vocab_size=30)
LORA = {"rank": 8, "alpha": 16, "targets": ["q_proj", "v_proj"]}
SHAPES: dict[str, Any] = {
    "base": asdict(SHAPE),
    "draft": asdict(SHAPE),
    **{
        run: {
            "base": asdict(SHAPE),
            "head": {**asdict(head), "feature_layers": list(head.feature_layers)},
            "token_ids": list(range(30)),
        }
        for run, head in (("head", HEAD), ("mtp", MTP))
    },
    "moe": asdict(MOE),
    "typed": {"base": asdict(SHAPE), "lora": LORA},
    "terse": {"base": asdict(SHAPE), "lora": LORA},
}
SETTINGS = {
    "tokens": 1,
    "step_tokens": 16_384,
    "length": 512,
    "long_from": 0.8,
    "long_length": 2048,
    "turns_share": 0.2,
    "turns_from": 0.6,
    "answers_only": True,
    "fim_share": 0.1,
    "adamw_learning_rate": 0.004,
    "muon_learning_rate": 0.02,
    "bfloat16": True,
}


def measured(bits_per_byte: float, share: float = 1.0) -> dict[str, Any]:
    total = {**FIGURES, "bits_per_byte": bits_per_byte}
    return {
        "precision": "float32",
        "window_tokens": 2048,
        "share": share,
        "total": total,
        "by_package": {"click": {**FIGURES, "bits_per_byte": 0.4321}},
    }


def sample(kind: str, prompt: str, completion: str) -> dict[str, Any]:
    return {
        "kind": kind,
        "source": "click/core.py:7" if kind == "heldout" else "",
        "prompt": prompt,
        "completion": completion,
        "temperature": 0.6,
        "top_p": 0.9,
    }


def shares(value: float) -> dict[str, float]:
    return {
        "typed_functions": value,
        "annotated_parameters": value,
        "annotated_returns": value,
        "docstrings": value,
        "comments_per_100_code_lines": 100 * value,
        "words_per_comment": 10 * value,
    }


def measures() -> dict[str, Any]:
    baseline = {"bits_per_byte": 2.5}
    names = ("gzip", "gzip_trained", "xz", "xz_trained", "byte_5gram", "token_5gram")
    means = {"parsed_share": 0.81, "brackets_match": 0.9, "indented_share": 0.99}
    means |= {"n_lines": 14.6, "empty_share": 0.3}
    members = {
        name: {
            "shares": shares(value),
            "bits_per_byte": {"ordinary": value, "typed": value},
            "texts": [f"def {name}_{i}():\n    pass\n" for i in range(5)],
        }
        for name, value in (("base", 0.125), ("typed", 0.875), ("terse", 0.25))
    }
    return {
        "base": measured(0.8765),
        "draft": measured(1.2346),
        "moe": measured(0.8585),
        "moe-control": measured(0.8686),
        "baselines": {
            "n_heldout_bytes": 765_432,
            "baselines": {
                name: baseline | {"bits_per_byte": 1.5 + i} for i, name in enumerate(names)
            },
        },
        "acceptance": {
            "figures": {
                "n_prefixes": 200,
                "prefix_tokens": 256,
                "continued_tokens": 64,
                "alpha": 0.6543,
                "alpha_error": 0.0111,
                "drafting": [{"n_drafted": 4, "accepted": 1.75, "n_passes": 9}],
            }
        },
        "mtp-acceptance": {
            "figures": {
                "n_prefixes": 150,
                "prefix_tokens": 256,
                "continued_tokens": 64,
                "alpha": 0.6321,
                "alpha_error": 0.0101,
                "drafting": [{"n_drafted": 4, "accepted": 1.5, "n_passes": 9}],
            },
            "date": "2026-11-30",
            "kinds": {},
        },
        "head-acceptance": {
            "figures": {
                "n_prefixes": 150,
                "prefix_tokens": 256,
                "continued_tokens": 64,
                "alpha": 0.7123,
                "alpha_error": 0.0099,
                "drafting": [
                    {"n_drafted": 4, "accepted": 2.25, "n_passes": 9},
                    {"n_drafted": 5, "accepted": 2.375, "n_passes": 8},
                ],
            },
            "date": "2026-11-29",
            "kinds": {
                "code": {"n_prefixes": 9, "n_places": 5_432, "shares": [0.71, 0.5, 0.25]},
                "answers": {"n_prefixes": 9, "n_places": 99, "shares": [0.8, 0.625, 0.5]},
            },
        },
        "adapters": {
            "heads": 60,
            "max_tokens": 160,
            "temperature": 0.6,
            "held_out": {"ordinary": {}, "typed": {}},
            "members": members,
        },
        "samples-base": {
            "model": "headrace-base-q8_0.gguf",
            "seed": 77,
            "means": means,
            "reference_means": means,
            "samples": [
                sample("heldout", "def one():\n", "    return 1\n```\n"),
                sample("hand", "import nu", "mpy as np\n"),
                sample("chat", "What does len do?", "It counts."),
            ],
        },
    }


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """What `make models` leaves, with made-up figures."""
    provenance = {
        "packages": [
            {
                "name": name,
                "version": "1.0",
                "licence": licence,
                "files": [{"path": "a.py", "n_bytes": n_bytes, "sha256": "0", "split": split}],
            }
            for name, licence, n_bytes, split in (
                ("flask", "BSD-3-Clause", 4_321, "train"),
                ("click", "BSD-3-Clause", 1_234, "heldout"),
                ("rich", "MIT", 2_222, "train"),
            )
        ]
    }
    for name in ("corpus", "turns", "measures", "export"):
        (tmp_path / name).mkdir()
    (tmp_path / "corpus" / "provenance.json").write_text(json.dumps(provenance))
    (tmp_path / "turns" / "train.jsonl").write_text("{}\n" * 345)
    times = {"machine": "2 CPUs (quiet ones)", "stages": {"base": 3600.0, "turns": 60.0}}
    (tmp_path / "times.json").write_text(json.dumps(times))
    for name, value in measures().items():
        (tmp_path / "measures" / f"{name}.json").write_text(json.dumps(value))
    for run, member in MEMBERS.items():
        progress = {"tokens": 20_500_480, "step": 1_252, "counted_s": 3_540.0}
        note = {"progress": progress, "settings": SETTINGS, "model": SHAPES[run]}
        (tmp_path / run).mkdir()
        weights = {"x": np.zeros((3, 5), np.float32), "y": np.zeros(7, np.float32)}
        path = tmp_path / run / "checkpoint.safetensors"
        save_file(weights, path, metadata={NOTE_KEY: json.dumps(note)})
        exported(tmp_path, run).mkdir()
        if member.kind == "head":
            weights = weights | {"d2t": np.zeros(9, np.int64), "t2d": np.zeros(9, np.bool_)}
        weights_name, *others = member.folder_files or ("model.safetensors",)
        save_file(weights, exported(tmp_path, run) / weights_name)
        for name in others:
            (exported(tmp_path, run) / name).write_text("{}")
        if member.kind == "model":
            exported_gguf(tmp_path, run).write_bytes(b"x" * 1_111)
    return tmp_path


@pytest.mark.parametrize("run", MEMBERS)
def test_every_card_says_what_every_card_must(run: str, work: Path) -> None:
    card = render(gather(run, work))
    assert card.startswith(f"# headrace-{run}\n\n")
    for text in (
        "| parameters | 22 |",
        "20,500,480",
        "1,252 of 16,384 tokens",
        "59 minutes",
        "2 CPUs (quiet ones)",
        "2 files (6,543 bytes) of 2 packages",
        "1 files (1,234 bytes)",
        "click 1.0",
        "345 short conversations",
        "| MIT | 1 | 1 | 2,222 |",
        "Apache-2.0",
        "PROVENANCE.md",
        "at most 2,048 tokens",
        "make models",
        "took 415 minutes",  # an hour and a minute of times.json, and six runs' time in steps
    ):
        assert text in " ".join(card.split()), text
    assert str(work) not in card
    assert "{" not in card, "a placeholder was left"


def test_the_base_s_card_has_figures_baselines_and_samples(work: Path) -> None:
    card = render(gather("base", work))
    assert "| headrace-base | 0.876 ± 0.012 | 8.17 | 54.3% | 76.5% |" in card
    assert "| gzip -9 | 1.500 |" in card and "| 5-gram model of tokens | 6.500 |" in card
    assert "| click | 34,567 | 0.432 | 54.3% |" in card
    assert "| headrace-base-q8_0.gguf | 1,111 |" in card
    turns = "20% of the tokens from 60% of the budget on; of these the answers learnt"
    assert f"| conversations | {turns} |" in card
    assert "It was not made in one go" not in card
    # A completion may hold a fence of its own.
    assert "````python\n    return 1\n```\n````" in card
    assert "mpy as np" in card and "It counts." in card and "seed 77" in card
    (work / "measures" / "base-all.json").write_text(json.dumps(measured(0.8812)))
    assert "| headrace-base, on all held-out files | 0.881 ± 0.012" in render(gather("base", work))
    assert "| lines that are not blank, of 20 at most | 14.6 | 14.6 |" in card
    assert "| samples without such a line | 30% | 30% |" in card
    assert card.count("headrace-base |") == 1


def test_a_card_says_where_a_run_was_taken_up_with_other_settings() -> None:
    first, last = SETTINGS | {"tokens": 20, "turns_share": 0.1}, SETTINGS | {"tokens": 30}
    note = {"progress": {"legs": [{"tokens": 20, "settings": first}]}, "settings": last}
    assert "| 20 | `tokens` 20 to 30, `turns_share` 0.1 to 0.2 |" in schedule.legs(note)


def test_a_card_says_where_a_run_was_taken_up_from_its_file() -> None:
    assert schedule.taken_up({"tokens": 30}) == ""
    assert "At 1,234,567 tokens the run was" in schedule.taken_up({"taken_up_tokens": [1_234_567]})


def test_other_models_stand_beside_the_base(work: Path) -> None:
    draft = render(gather("draft", work))
    assert "| conversations | 20% of the tokens from 60% of the budget on" in draft
    assert "| headrace-draft | 1.235 ± 0.012" in draft
    assert "| headrace-base | 0.876 ± 0.012" in draft
    assert "65.4% ± 1.1%" in draft and "| 4 | 1.75 | 2.75 |" in draft
    moe = render(gather("moe", work))
    assert "| headrace-base, trained on for the same tokens | 0.869 ± 0.012" in moe
    (work / "measures" / "moe-control.json").unlink()
    alone = render(gather("moe", work))
    assert "trained on for the same tokens" not in alone and "was not made" in alone
    assert "8 of width 32, 2 used per token" in moe and "glm4_moe" in moe
    assert "## Samples" not in moe and "## Samples" not in draft


def test_a_head_s_card_has_what_it_reads_and_how_often_it_is_right(work: Path) -> None:
    card = render(gather("head", work))
    words = " ".join(card.split())
    assert "to agree with headrace-base, which stays as it is, by this project" in words
    assert "| features | 192 numbers: the base's states behind 0, 1, 2 of its 2 layers |" in card
    assert "| tokens it knows | 30 of 320, the commonest of the training text" in card
    assert "| model.safetensors |" in card and "| config.json | 2 |" in card
    assert "| headrace-head | 71.2% ± 1.0% |" in card
    assert "| headrace-draft | 65.4% ± 1.1% |" in card
    assert "| tokens per pass | with headrace-mtp | with headrace-draft |" in card
    assert "| 4 | 2.25 | 3.25 | 2.50 | 2.75 |" in card
    assert "| 5 | 2.38 | 3.38 |  |  |" in card
    assert "| held-out | places | 1 right | 2 right | 3 right | taken of 3 |" in card
    assert "| code | 5,432 | 71.0% | 50.0% | 25.0% | 1.46 |" in card
    assert "| answers to questions | 99 | 80.0% | 62.5% | 50.0% | 1.93 |" in card
    assert "Measured on 2026-11-29." in words
    assert "It never guesses 290 of the base's 320 tokens" in words
    assert "What the base learnt from, and this from a part of it:" in card
    assert "It writes plausible Python" not in card and "## How well it predicts" not in card
    assert "](../../src/headrace/embedded/CARD.md)" in card
    for name in ("acceptance", "mtp-acceptance"):
        (work / "measures" / f"{name}.json").unlink()
    alone = render(gather("head", work))
    assert "headrace-draft" not in alone and "| 4 | 2.25 | 3.25 |\n" in alone
    (work / "measures" / "head-acceptance.json").unlink()
    with pytest.raises(KeyError, match="--only measure-head-acceptance writes it"):
        render(gather("head", work))


def test_the_card_of_a_layer_for_further_tokens_has_its_own_figures(work: Path) -> None:
    card = render(gather("mtp", work))
    assert "| headrace-mtp | 63.2% ± 1.0% |\n| headrace-head | 71.2% ± 1.0% |" in card
    assert "| 4 | 1.50 | 2.50 | 3.25 | 2.75 |" in card
    assert "| features | 64 numbers: the base's states behind its last norm" in card
    assert "| kind | layer for multi-token prediction of headrace-base" in card
    assert "By position and kind of text" not in card


def test_a_run_of_short_windows_says_so() -> None:
    short = {"length": 512, "long_length": 2048, "long_from": 2.0}
    assert schedule.sequence_length(short) == "512"
    assert schedule.sequence_length(short | {"long_from": 0.9}) == (
        "512, from 90% of the budget on 2,048"
    )


def test_an_adapter_s_card_shows_what_it_changes(work: Path) -> None:
    card = render(gather("typed", work))
    assert "| functions with all types annotated | 12.5% | 87.5% | 25.0% |" in card
    assert "| comments per 100 lines of code | 12.5 | 87.5 | 25.0 |" in card
    assert "| ordinary | 0.125 | 0.875 | 0.250 |" in card
    assert "def typed_2():" in card and "def base_2():" in card and "def typed_3():" not in card
    assert "rank, alpha | 8, 16" in card


def test_what_was_compared_with_other_software_is_told(work: Path) -> None:
    entry = {"same_prompts": 10, "prompts": 10, "same_tokens": 640, "tokens": 640}
    report = {
        "logit_difference": 1.5e-5,
        "exact": [entry | {"what": "llama.cpp, F32 GGUF"}],
        "rounded": [],
    }
    assert "## Other software" not in render(gather("base", work))
    (work / "measures" / "verify-base.json").write_text(json.dumps(report))
    card = render(gather("base", work))
    report["exact"] = []
    (work / "measures" / "verify-moe.json").write_text(json.dumps(report))
    moe = render(gather("moe", work))
    assert "1.5e-05 (float32)." in moe and "Greedy\ncontinuations" not in moe
    assert "1.5e-05" in card and "| llama.cpp, F32 GGUF | 10 of 10 | 640 of 640 |" in card


def test_a_missing_figure_is_named_with_its_stage(work: Path) -> None:
    (work / "measures" / "baselines.json").unlink()
    evidence = gather("base", work)
    with pytest.raises(KeyError, match="--only measure-baselines writes it"):
        render(evidence)


def test_the_section_about_other_software_is_written_again_and_the_rest_stays() -> None:
    card = "# x\n\n## Samples\n\na\n\n## Other software\n\noutdated\n\n## Limits\n\nIt is tiny.\n"
    agreed = {"what": "headrace, F32 GGUF", "same_prompts": 9, "prompts": 10,
              "same_tokens": 1605, "tokens": 2000}  # fmt: skip
    verified = {"taken_up": True, "logit_difference": 3e-5, "exact": [agreed], "rounded": []}
    row = {"kind": "Q8_0", "headrace": 10.9332, "llama_cpp": 10.9261, "error": 0.226}
    measured_text = {"texts": ["a.py"], "python": "3.11.7", "n_bytes": 1234, "windows": 5,
                     "context": 512, "rows": [row]}  # fmt: skip
    measures = {"verify-moe": verified, "perplexity-moe": measured_text}
    again = renewed(card, measures, "moe")
    assert again.startswith("# x\n\n## Samples\n\na\n\n## Other software\n\nWith the weights as")
    assert again.endswith("\n\n## Limits\n\nIt is tiny.\n")
    assert "| headrace, F32 GGUF | 9 of 10 | 1,605 of 2,000 |" in again
    assert "| Q8_0 | 10.933 | 10.926 | 0.23 |" in again and "outdated" not in again
    assert renewed(again, measures, "moe") == again
    with pytest.raises(ValueError, match="no section '## Other software'"):
        renewed("# x\n", measures, "moe")
