"""Held-out scores: each token once with the stated context, and figures of all of them."""

from __future__ import annotations

import json
import math
import random
import sys
from dataclasses import asdict, fields
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from training.measure import heldout_text

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="measuring models needs PyTorch")

from tests.training.toy_models import (  # noqa: E402
    VOCABULARY,
    Counting,
    random_model,
    write_checkpoint,
    write_held_out,
)
from training.measure import held_out  # noqa: E402
from training.measure.predictor import ModulePredictor  # noqa: E402


def random_ids(seed: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(VOCABULARY) for _ in range(50)]


def test_score_is_the_models_own_cross_entropy() -> None:
    model, ids = random_model(seed=1), random_ids(2)
    found = held_out.score(ModulePredictor(model, bfloat16=False), ids, 170, 64, 32)
    stream = torch.tensor([[0, *ids]])
    logits = model(stream[:, :-1]).detach()[0]
    nats = -logits.log_softmax(-1)[range(50), ids].sum()
    ranks = (logits > logits[range(50), ids][:, None]).sum(dim=1)
    assert found.nats == pytest.approx(float(nats), rel=1e-5)
    assert (found.n_tokens, found.n_bytes) == (50, 170)
    assert found.n_top1 == int((ranks == 0).sum())
    assert found.n_top5 == int((ranks < 5).sum())


@pytest.mark.parametrize(("window", "stride"), [(10, 4), (10, 10), (16, 1), (64, 64), (50, 25)])
def test_windows_read_each_token_once_with_the_stated_context(window: int, stride: int) -> None:
    model, ids = ModulePredictor(random_model(seed=1), bfloat16=False), random_ids(3)
    stream = [0, *ids]
    nats = 0.0
    for place, token in enumerate(ids):
        if place < window:
            first = 0
        else:
            windows_on = (place - window) // stride + 1
            first = min(50, window + windows_on * stride) - window
        logits = model.logits(torch.tensor([stream[first : place + 1]]))[0, -1]
        nats -= float(logits.log_softmax(-1)[token])
        assert place < window or window - stride < place + 1 - first <= window
    found = held_out.score(model, ids, 50, window, stride)
    assert found.n_tokens == 50
    assert found.nats == pytest.approx(nats, rel=1e-5)


def test_score_counts_hits() -> None:
    found = held_out.score(Counting(), [1, 2, 3, 9, 10, 30], 6, 8, 4)
    assert found.n_top1 == 4
    with pytest.raises(ValueError, match="stride is 9"):
        held_out.score(Counting(), [1], 1, 8, 9)


def test_figures_are_of_all_bytes_and_tokens() -> None:
    scores = [held_out.Score(100, 40, 80.0, 10, 20), held_out.Score(300, 60, 170.0, 30, 40)]
    found = held_out.figures(scores)
    assert found.bits_per_byte == pytest.approx(250.0 / 400 / math.log(2))
    assert found.perplexity == pytest.approx(math.exp(2.5))
    assert (found.top1, found.top5) == (0.4, 0.6)
    # Residuals are 80 - 62.5 and 170 - 187.5.
    expected = math.sqrt(2 * 17.5**2 * 2) / 400 / math.log(2)
    assert found.bits_per_byte_error == pytest.approx(expected)
    assert held_out.figures(scores[:1]).bits_per_byte_error is None


def test_share_is_spread_evenly() -> None:
    documents = [heldout_text.Document("p", str(i), "") for i in range(10)]
    assert [d.path for d in heldout_text.spread(documents, 0.5)] == ["1", "3", "5", "7", "9"]
    assert heldout_text.spread(documents, 1.0) == documents
    assert len(heldout_text.spread(documents, 0.001)) == 1
    with pytest.raises(ValueError, match="share is 0"):
        heldout_text.spread(documents, 0.0)


def test_the_report_has_the_documented_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = write_held_out(tmp_path)
    path, out = tmp_path / "checkpoint.safetensors", tmp_path / "out.json"
    model = write_checkpoint(path, seed=1)
    options = ["--data", str(tmp_path), "--json", str(out), "--window", "16", "--stride", "8"]
    monkeypatch.setattr(sys, "argv", ["held_out", str(path), *options, "--no-bfloat16"])
    held_out.main()
    report = json.loads(out.read_text())
    assert set(report) == {field.name for field in fields(held_out.Report)}
    assert (report["window_tokens"], report["stride_tokens"], report["share"]) == (16, 8, 1.0)
    assert report["precision"] == "float32"
    assert set(report["by_package"]) == {"one", "two"}
    total, parts = report["total"], report["by_package"].values()
    assert total["n_bytes"] == sum(len(document.text) for document in documents)
    for key in ("n_documents", "n_bytes", "n_tokens"):
        assert total[key] == sum(part[key] for part in parts)
    predictor = ModulePredictor(model, bfloat16=False)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer" / "tokenizer.json"))
    expected, _ = held_out.held_out(predictor, tokenizer, documents, 16, 8)
    assert total == asdict(expected)
    assert f"{total['bits_per_byte']:.4f}" in capsys.readouterr().out
