"""Figures of models: held-out scores and acceptance of drafts."""

from __future__ import annotations

import importlib
import json
import math
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
VOCABULARY = 40


@pytest.fixture(autouse=True)
def importable_tools() -> Iterator[None]:
    """`tools` belongs to the repository, not to the installed package."""
    sys.path.insert(0, str(ROOT))
    yield
    sys.path.remove(str(ROOT))


def load(name: str) -> ModuleType:
    return importlib.import_module(f"tools.train.{name}")


@pytest.fixture
def torch() -> Any:
    module = pytest.importorskip("torch", reason="measuring models needs PyTorch")
    module.set_num_threads(1)
    return module


def tiny_model(torch: Any, seed: int, scale: float = 8.0) -> Any:
    """A random model whose guesses depend on what it reads: weights are larger than at a start."""
    torch.manual_seed(seed)
    config = load("models.config").ModelConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=64,
    )
    model = load("models.model").LanguageModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(scale)
    return model


class Cycle:
    """Predicts that n follows n - 1, but says 0 behind every token in `wrong_behind`."""

    def __init__(self, torch: Any, wrong_behind: Sequence[int] = ()) -> None:
        self.torch, self.wrong_behind = torch, wrong_behind

    def logits(self, ids: Any) -> Any:
        guesses = (ids + 1) % VOCABULARY
        for token in self.wrong_behind:
            guesses = self.torch.where(ids == token, 0, guesses)
        return 10.0 * self.torch.nn.functional.one_hot(guesses, VOCABULARY).float()


def test_score_is_the_models_own_cross_entropy(torch: Any) -> None:
    measure, predictor = load("measure.held_out"), load("measure.predictor")
    model = tiny_model(torch, seed=1)
    ids = [random.Random(2).randrange(VOCABULARY) for _ in range(50)]
    found = measure.score(predictor.ModulePredictor(model, bfloat16=False), ids, 170, 64, 32)
    stream = torch.tensor([[0, *ids]])
    logits = model(stream[:, :-1]).detach()[0]
    nats = -logits.log_softmax(-1)[range(50), ids].sum()
    ranks = (logits > logits[range(50), ids][:, None]).sum(dim=1)
    assert found.nats == pytest.approx(float(nats), rel=1e-5)
    assert (found.n_tokens, found.n_bytes) == (50, 170)
    assert found.n_top1 == int((ranks == 0).sum())
    assert found.n_top5 == int((ranks < 5).sum())


@pytest.mark.parametrize(("window", "stride"), [(10, 4), (10, 10), (16, 1), (64, 64), (50, 25)])
def test_windows_read_each_token_once_with_the_stated_context(
    torch: Any, window: int, stride: int
) -> None:
    measure, predictor = load("measure.held_out"), load("measure.predictor")
    model = predictor.ModulePredictor(tiny_model(torch, seed=1), bfloat16=False)
    ids = [random.Random(3).randrange(VOCABULARY) for _ in range(50)]
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
    found = measure.score(model, ids, 50, window, stride)
    assert found.n_tokens == 50
    assert found.nats == pytest.approx(nats, rel=1e-5)


def test_score_counts_hits(torch: Any) -> None:
    measure = load("measure.held_out")
    found = measure.score(Cycle(torch), [1, 2, 3, 9, 10, 30], 6, 8, 4)
    assert found.n_top1 == 4
    with pytest.raises(ValueError, match="stride is 9"):
        measure.score(Cycle(torch), [1], 1, 8, 9)


def test_figures_are_of_all_bytes_and_tokens(torch: Any) -> None:
    measure = load("measure.held_out")
    scores = [measure.Score(100, 40, 80.0, 10, 20), measure.Score(300, 60, 170.0, 30, 40)]
    found = measure.figures(scores)
    assert found.bits_per_byte == pytest.approx(250.0 / 400 / math.log(2))
    assert found.perplexity == pytest.approx(math.exp(2.5))
    assert (found.top1, found.top5) == (0.4, 0.6)
    # Residuals are 80 - 62.5 and 170 - 187.5.
    expected = math.sqrt(2 * 17.5**2 * 2) / 400 / math.log(2)
    assert found.bits_per_byte_error == pytest.approx(expected)
    assert measure.figures(scores[:1]).bits_per_byte_error is None


def test_share_is_spread_evenly() -> None:
    heldout = load("measure.heldout_text")
    documents = [heldout.Document("p", str(i), "") for i in range(10)]
    assert [d.path for d in heldout.spread(documents, 0.5)] == ["1", "3", "5", "7", "9"]
    assert heldout.spread(documents, 1.0) == documents
    assert len(heldout.spread(documents, 0.001)) == 1
    with pytest.raises(ValueError, match="share is 0"):
        heldout.spread(documents, 0.0)


@pytest.mark.parametrize("bfloat16", [False, True])
def test_kept_keys_and_values_change_nothing(torch: Any, bfloat16: bool) -> None:
    predictor = load("measure.predictor")
    model = predictor.ModulePredictor(tiny_model(torch, seed=5), bfloat16)
    prefixes = torch.randint(VOCABULARY, (3, 9), generator=torch.Generator().manual_seed(1))
    found = predictor.continued(model, prefixes, 12)
    assert len(found.unique()) > 3
    ids = torch.cat((prefixes, found), dim=1)
    logits = model.logits(ids[:, :-1])[:, -12:]
    best = logits.max(dim=-1).values
    own = logits.gather(2, found[:, :, None])[:, :, 0]
    # In bfloat16 sums differ in their last places with the shape, and so may near ties.
    assert (best - own).max() <= (0.05 * best.abs().max() if bfloat16 else 1e-4)


class Alone:
    """A predictor with logits and nothing else."""

    def __init__(self, inner: Any) -> None:
        self.logits = inner.logits


def chains(draft: Any, base: Any, prefix: list[int], n_tokens: int, k: int, torch: Any) -> Any:
    """Speculative decoding as it is done: k proposals one by one, then the base's verdict."""

    def guess(model: Any, ids: list[int]) -> int:
        return int(model.logits(torch.tensor([ids]))[0, -1].argmax())

    ids, accepted = list(prefix), []
    while len(ids) - len(prefix) + k <= n_tokens:
        proposals: list[int] = []
        for _ in range(k):
            proposals.append(guess(draft, ids + proposals))
        taken = 0
        while taken < k and guess(base, ids + proposals[:taken]) == proposals[taken]:
            taken += 1
        ids += proposals[:taken]
        ids.append(guess(base, ids))
        accepted.append(taken)
    return accepted


@pytest.mark.parametrize("alone", [False, True])
def test_acceptance_is_that_of_real_chains(torch: Any, alone: bool) -> None:
    predictor, acceptance = load("measure.predictor"), load("measure.acceptance")
    base_model, draft_model = tiny_model(torch, seed=1), tiny_model(torch, seed=1)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in draft_model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(0.4 * parameter.std() * noise if parameter.dim() == 2 else 0.0)
    base, draft = (predictor.ModulePredictor(m, False) for m in (base_model, draft_model))
    if alone:
        base, draft = Alone(base), Alone(draft)
    prefixes = torch.randint(VOCABULARY, (6, 8), generator=generator)
    found = acceptance.acceptance(draft, base, prefixes, n_tokens=20, max_drafted=4)
    assert 0.0 < found.alpha < 1.0
    for one in found.drafting:
        expected = [
            taken
            for prefix in prefixes.tolist()
            for taken in chains(draft, base, prefix, 20, one.n_drafted, torch)
        ]
        assert one.n_passes == len(expected)
        assert one.accepted == pytest.approx(sum(expected) / len(expected))


def test_alpha_counts_the_bases_tokens(torch: Any) -> None:
    acceptance = load("measure.acceptance")
    prefixes = torch.tensor([[0, 1, 2], [10, 11, 12]])
    found = acceptance.acceptance(Cycle(torch, [4]), Cycle(torch), prefixes, 4, 2)
    # Behind 2 come 3 4 5 6, of which the draft misses 5; behind 12 it misses nothing.
    assert found.alpha == pytest.approx(7 / 8)
    assert found.alpha_error == pytest.approx((0.25 / math.sqrt(2)) / math.sqrt(2))
    assert [d.n_passes for d in found.drafting] == [3 + 2, 1 + 1]
    assert [d.accepted for d in found.drafting] == pytest.approx([(2 + 2) / 5, (2 + 2) / 2])
    same = acceptance.acceptance(Cycle(torch), Cycle(torch), prefixes, 4, 2)
    assert same.alpha == 1.0


def test_drafting_stops_where_a_pass_no_longer_fits(torch: Any) -> None:
    drafted = load("measure.acceptance").drafted
    line = [True, True, False, True, False, False, True]
    # Passes begin at 0 (two taken), 3 (one), 5 (none); at 6 two proposals would go past the end.
    assert drafted([line], 2) == load("measure.acceptance").Drafting(2, 1.0, 3)


def test_prefixes_are_spread_over_all_places(torch: Any) -> None:
    draw_prefixes = load("measure.acceptance").draw_prefixes
    documents = [[0, 1, 2, 3], [7], [0, 10, 11, 12, 13, 14]]
    every = [[0, 1, 2, 3], [0, 10, 11, 12], [10, 11, 12, 13], [11, 12, 13, 14]]
    assert draw_prefixes(documents, 4, 4).tolist() == every
    assert draw_prefixes(documents, 2, 4).tolist() == every[1::2]
    assert draw_prefixes(documents, 8, 4).tolist() == [one for one in every for _ in range(2)]
    with pytest.raises(ValueError, match="no document is as long"):
        draw_prefixes(documents, 2, 7)


def write_data(root: Path) -> list[Any]:
    """A corpus of two packages and a tokenizer, below `root`."""
    documents = []
    for index in range(6):
        package = "one" if index < 3 else "two"
        text = f"def f_{index}(x):\n    return x * {index}\n" * (index + 1)
        documents.append(
            load("measure.heldout_text").Document(package, f"{package}/{index}.py", text)
        )
    (root / "corpus").mkdir()
    lines = [json.dumps(document._asdict()) + "\n" for document in documents]
    (root / "corpus" / "heldout.jsonl").write_text("".join(lines))
    (root / "tokenizer").mkdir()
    tokenizer = load("data.tokenizer").train_tokenizer([d.text for d in documents], 300)
    tokenizer.save(str(root / "tokenizer" / "tokenizer.json"))
    return documents


def write_checkpoint(torch: Any, path: Path, seed: int, experts: bool = False) -> Any:
    shape = {
        "vocab_size": 300,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
    }
    torch.manual_seed(seed)
    if experts:
        shape |= {"moe_intermediate_size": 16, "n_routed_experts": 4}
        model = load("models.moe_model").MoELanguageModel(
            load("models.moe_config").MoEConfig(**shape)
        )
    else:
        model = load("models.model").LanguageModel(load("models.config").ModelConfig(**shape))
    checkpoint = load("loop.checkpoint")
    checkpoint.save(path, model, [], checkpoint.Progress(), {}, shape)
    return model


def run(name: str, options: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [name, *options])
    load(name).main()


def test_measure_writes_the_documented_keys(
    torch: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    documents = write_data(tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    model = write_checkpoint(torch, path, seed=1)
    options = [str(path), "--data", str(tmp_path), "--json", str(tmp_path / "out.json")]
    run(
        "measure.held_out",
        [*options, "--window", "16", "--stride", "8", "--no-bfloat16"],
        monkeypatch,
    )
    report = json.loads((tmp_path / "out.json").read_text())
    assert set(report) == {field.name for field in fields(load("measure.held_out").Report)}
    assert (report["window_tokens"], report["stride_tokens"], report["share"]) == (16, 8, 1.0)
    assert report["precision"] == "float32"
    assert set(report["by_package"]) == {"one", "two"}
    total, parts = report["total"], report["by_package"].values()
    assert total["n_bytes"] == sum(len(d.text) for d in documents)
    for key in ("n_documents", "n_bytes", "n_tokens"):
        assert total[key] == sum(part[key] for part in parts)
    predictor = load("measure.predictor").ModulePredictor(model, bfloat16=False)
    tokenizer = load("measure.held_out").Tokenizer.from_file(
        str(tmp_path / "tokenizer" / "tokenizer.json")
    )
    expected, _ = load("measure.held_out").held_out(predictor, tokenizer, documents, 16, 8)
    assert total == asdict(expected)
    assert f"{total['bits_per_byte']:.4f}" in capsys.readouterr().out


@pytest.mark.parametrize("experts", [False, True])
def test_folders_and_adapters_are_opened(torch: Any, tmp_path: Path, experts: bool) -> None:
    predictor, lora = load("measure.predictor"), load("models.lora")
    path = tmp_path / "model.safetensors"
    model = write_checkpoint(torch, path, seed=3, experts=experts)
    config = model.moe_config if experts else model.config
    (tmp_path / "config.json").write_text(json.dumps(config.to_hugging_face()))
    ids = torch.randint(300, (2, 9))
    plain = [predictor.open_predictor(place, bfloat16=False) for place in (path, tmp_path)]
    expected = model(ids)
    for one in plain:
        assert torch.allclose(one.logits(ids), expected, atol=1e-5)
    adapter = lora.LoraConfig(targets=("q_proj", "o_proj"))
    lora.add_lora(model, adapter)
    for module in model.modules():
        if isinstance(module, lora.LoraLinear):
            torch.nn.init.normal_(module.lora_B.weight)
    lora.save_adapter(tmp_path / "adapter", lora.lora_tensors(model), adapter, "base")
    folded = predictor.open_predictor(path, tmp_path / "adapter", bfloat16=False).logits(ids)
    assert torch.allclose(folded, model(ids), atol=1e-2)
    assert not torch.allclose(folded, expected, atol=1e-2)


def test_other_models_are_refused(torch: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(ValueError, match="model_type 'llama'"):
        load("measure.predictor").open_predictor(tmp_path)


def test_acceptance_writes_the_documented_keys(
    torch: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_data(tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    write_checkpoint(torch, path, seed=1)
    acceptance = load("measure.acceptance")
    monkeypatch.setattr(acceptance, "PREFIX_TOKENS", 8)
    options = ["--data", str(tmp_path), "--json", str(tmp_path / "out.json"), "--prefixes", "3"]
    run("measure.acceptance", [str(path), str(path), *options], monkeypatch)
    report = json.loads((tmp_path / "out.json").read_text())
    assert set(report) == {"base", "draft", "precision", "cpu_s", "figures"}
    found = report["figures"]
    assert set(found) == {field.name for field in fields(acceptance.Acceptance)}
    assert (found["n_prefixes"], found["prefix_tokens"], found["continued_tokens"]) == (3, 8, 64)
    assert found["alpha"] > 0.9
    assert [one["n_drafted"] for one in found["drafting"]] == list(range(1, 9))
    assert "3 prefixes" in capsys.readouterr().out
