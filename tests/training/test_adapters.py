"""Adapters: LoRA layers, PEFT's layout, merging, and a run from documents to measures."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.training import toy_training
from training.data.tokenizer import train_tokenizer, write_tokenizer
from training.models.config import ModelConfig

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="training and merging adapters needs PyTorch")

from safetensors.torch import load_file, save_file  # noqa: E402

from training import adapters  # noqa: E402
from training.loop import checkpoint  # noqa: E402
from training.loop.optimizer import make_optimizers  # noqa: E402
from training.loop.parallel import Workers  # noqa: E402
from training.models import lora  # noqa: E402
from training.models.model import LanguageModel  # noqa: E402
from training.styles import report as style_report  # noqa: E402

# Rows of whole Q8_0 blocks, so that GGUF holds every matrix.
SHAPE = replace(toy_training.SHAPE, num_attention_heads=2, num_key_value_heads=1, head_dim=32)
VOCABULARY = SHAPE.vocab_size
CONFIG = lora.LoraConfig(rank=4, alpha=12)


def tiny_model(seed: int = 1) -> Any:
    torch.manual_seed(seed)
    return LanguageModel(SHAPE)


def with_adapter(config: lora.LoraConfig = CONFIG, seed: int = 2) -> Any:
    """A tiny model whose adapter changes its logits a lot; the model itself is `tiny_model()`."""
    model = tiny_model()
    lora.add_lora(model, config)
    generator = torch.Generator().manual_seed(seed)
    for tensor in lora.lora_tensors(model).values():
        tensor.copy_(0.2 * torch.randn(tensor.shape, generator=generator))
    return model


def ids() -> Any:
    return torch.randint(VOCABULARY, (2, 17), generator=torch.Generator().manual_seed(3))


def write_folder(model: Any, out: Path) -> Path:
    """The model as a Hugging Face folder, without a tokenizer."""
    out.mkdir()
    (out / "config.json").write_text(json.dumps(SHAPE.to_hugging_face()))
    save_file(model.state_dict(), out / "model.safetensors", metadata={"format": "pt"})
    return out


@pytest.mark.smoke
def test_a_new_adapter_changes_nothing_and_only_it_is_trained() -> None:
    plain, model = tiny_model(), tiny_model()
    lora.add_lora(model, CONFIG)
    assert torch.equal(plain(ids()), model(ids()))
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert trained == set(lora.lora_tensors(model))
    assert len(trained) == 2 * len(lora.TARGETS) * SHAPE.num_hidden_layers
    # The frozen weights keep their names, so that a checkpoint of the base fits.
    assert set(plain.state_dict()) == set(model.state_dict()) - trained


def test_a_target_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="w_proj"):
        lora.add_lora(tiny_model(), lora.LoraConfig(targets=("q_proj", "w_proj")))


def test_merged_weights_give_the_same_logits() -> None:
    model = with_adapter()
    merged = tiny_model()
    weights = lora.merged(merged.state_dict(), lora.lora_tensors(model), CONFIG.scale)
    merged.load_state_dict(weights)
    torch.testing.assert_close(merged(ids()), model(ids()), rtol=1e-4, atol=1e-5)
    assert (model(ids()) - tiny_model()(ids())).abs().max() > 0.1


def test_an_adapter_of_another_base_is_refused() -> None:
    tensors = lora.lora_tensors(with_adapter())
    weights = {name: tensor[:, :-1] for name, tensor in tiny_model().state_dict().items()
               if tensor.dim() == 2}  # fmt: skip
    with pytest.raises(ValueError, match="another base"):
        lora.merged(weights, tensors, CONFIG.scale)


def test_adamw_trains_the_factors_and_leaves_the_base() -> None:
    model = with_adapter()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizers = make_optimizers(
        model, Workers(), muon_learning_rate=0.1, adamw_learning_rate=0.01, weight_decay=0.1
    )
    assert [type(optimizer) for optimizer in optimizers] == [torch.optim.AdamW]
    losses = []
    for _ in range(20):
        loss = model.loss(ids()[:, :-1], ids()[:, 1:])
        torch.autograd.backward(loss)
        losses.append(float(loss.detach()))
        optimizers[0].step()
        optimizers[0].zero_grad()
    assert losses[-1] < losses[0] - 0.2
    for name, parameter in model.named_parameters():
        assert torch.equal(before[name], parameter) is not parameter.requires_grad, name


def test_the_folder_has_pefts_names_and_comes_back(tmp_path: Path) -> None:
    tensors = lora.lora_tensors(with_adapter())
    n_bytes = lora.save_adapter(tmp_path / "a", tensors, CONFIG, "headrace-base")
    assert n_bytes == (tmp_path / "a" / "adapter_model.safetensors").stat().st_size
    stored = load_file(tmp_path / "a" / "adapter_model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.bfloat16}
    name = "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight"
    assert stored[name].shape == (CONFIG.rank, SHAPE.hidden_size)
    assert len(stored) == len(tensors)
    description = json.loads((tmp_path / "a" / "adapter_config.json").read_text())
    assert (description["peft_type"], description["r"], description["lora_alpha"]) == (
        "LORA",
        4,
        12,
    )
    read, config = lora.load_adapter(tmp_path / "a")
    assert (config.rank, config.alpha, set(config.targets)) == (4, 12, set(lora.TARGETS))
    assert set(read) == set(tensors)
    for key, tensor in read.items():
        assert torch.equal(tensor, tensors[key].bfloat16())


def test_the_shipped_adapter_is_below_a_megabyte(tmp_path: Path) -> None:
    model = LanguageModel(ModelConfig())
    lora.add_lora(model, adapters.LORA)
    tensors = lora.lora_tensors(model)
    assert lora.save_adapter(tmp_path, tensors, adapters.LORA, "headrace-base") < 1_000_000


@pytest.mark.parametrize(
    ("key", "value"), [("use_dora", True), ("use_rslora", True), ("bias", "all")]
)
def test_kinds_that_merge_otherwise_are_refused(tmp_path: Path, key: str, value: object) -> None:
    lora.save_adapter(tmp_path, lora.lora_tensors(with_adapter()), CONFIG, "headrace-base")
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    with pytest.raises(ValueError, match=key):
        lora.load_adapter(tmp_path)


def merged_folder(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Folders of the tiny base, of an adapter, and of both merged."""
    base = write_folder(tiny_model(), tmp_path / "base")
    adapter, out = tmp_path / "adapter", tmp_path / "merged"
    lora.save_adapter(adapter, lora.lora_tensors(with_adapter()), CONFIG, "headrace-base")
    lora.merge(adapter, base, out)
    return base, adapter, out


def test_a_merged_folder_is_a_model_like_its_base(tmp_path: Path) -> None:
    base, _, out = merged_folder(tmp_path)
    assert (out / "config.json").read_bytes() == (base / "config.json").read_bytes()
    assert sorted(file.name for file in out.iterdir()) == sorted(f.name for f in base.iterdir())
    model = style_report.load_folder(out)
    with torch.no_grad():
        # The folder's adapter was rounded to BF16.
        torch.testing.assert_close(model(ids()), with_adapter()(ids()), rtol=0.05, atol=0.05)


def test_peft_reads_the_folder_and_gives_the_logits_of_the_merged_model(tmp_path: Path) -> None:
    reason = "the check against the peft library needs it and transformers"
    transformers = pytest.importorskip("transformers", reason=reason)
    peft = pytest.importorskip("peft", reason=reason)
    base, adapter, out = merged_folder(tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    with torch.no_grad():
        before = theirs(ids()).logits
        theirs = peft.PeftModel.from_pretrained(theirs, adapter).eval()
        logits = theirs(ids()).logits
        ours = style_report.load_folder(out)(ids())
    assert (logits - before).abs().max() > 0.1
    torch.testing.assert_close(logits, ours, rtol=1e-4, atol=1e-4)


def write_data(data: Path) -> None:
    """A corpus in which half of the functions are typed, with conversations beside it."""

    def function(i: int) -> str:
        head = f"def name_{i}(value: int) -> int:" if i % 2 else f"def name_{i}(value):"
        return f"{head}\n    # add {i}\n    total = value + {i}\n    return total\n"

    (data / "corpus").mkdir(parents=True)
    (data / "turns").mkdir()
    for split, first, last in (("train", 0, 600), ("heldout", 5000, 5400)):
        texts = [function(i) for i in range(first, last)]
        lines = [json.dumps({"package": "toy", "path": "x", "text": text}) for text in texts]
        (data / "corpus" / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
        turns = [
            {"messages": [{"role": "user", "content": f"What is {i}?"},
                          {"role": "assistant", "content": f"It is {i}.\n{function(i)}"}]}
            for i in range(200)
        ]  # fmt: skip
        (data / "turns" / f"{split}.jsonl").write_text("\n".join(map(json.dumps, turns)) + "\n")
    documents = [function(i) for i in range(300)]
    write_tokenizer(train_tokenizer(documents, VOCABULARY), data / "tokenizer")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder with data, a base and a finished run of "typed"."""
    folder = tmp_path_factory.mktemp("adapters")
    write_data(folder / "data")
    (folder / "base").mkdir()
    saved = folder / "base" / "checkpoint.safetensors"
    progress = checkpoint.Progress()
    checkpoint.save(saved, tiny_model(), [], progress, {}, asdict(SHAPE))
    arguments = adapters.parser().parse_args(
        [
            "typed",
            *("--data", str(folder / "data"), "--base", str(folder / "base")),
            *("--out", str(folder / "typed"), "--tokens", "80000", "--workers", "1"),
            *("--no-compile", "--no-bfloat16", "--learning-rate", "0.02"),
        ]
    )
    arguments.out.mkdir()
    adapters.train(arguments)
    return SimpleNamespace(folder=folder, arguments=arguments)


def test_a_run_reads_documents_of_its_style_only(trained: Any) -> None:
    documents = trained.folder / "typed" / "documents"
    texts = adapters.read_texts(documents / "train.jsonl")
    assert 100 < len(texts) <= 300
    assert all("value: int) -> int:" in text for text in texts)
    turns = adapters.read_texts(documents / "turns.jsonl")
    assert turns
    assert all("value: int) -> int:" in text for text in turns)


def test_a_run_learns_and_leaves_an_adapter(trained: Any) -> None:
    out = trained.folder / "typed"
    lines = (out / "log.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])
    assert last["tokens"] >= 80_000
    # A random model knows nothing.
    base_loss = math.log(VOCABULARY)
    assert last["heldout_loss"] < base_loss - 0.2
    tensors, config = lora.load_adapter(out / "adapter")
    assert config.rank == adapters.LORA.rank
    assert all(float(t.abs().max()) > 0 for name, t in tensors.items() if "lora_B" in name)
    # The frozen base is in the checkpoint as it was.
    base = load_file(trained.folder / "base" / "checkpoint.safetensors")
    kept = load_file(out / "checkpoint.safetensors")
    assert all(torch.equal(kept[name], tensor) for name, tensor in base.items())


def test_a_run_from_another_base_does_not_go_on(trained: Any, tmp_path: Path) -> None:
    trainer, _ = adapters.build(trained.arguments, Workers())
    trainer.resume(trained.folder / "typed" / "checkpoint.safetensors")
    assert trainer.share >= 1.0
    trainer.shape = {**trainer.shape, "base_sha256": "0" * 64}
    with pytest.raises(ValueError, match="--fresh"):
        trainer.resume(trained.folder / "typed" / "checkpoint.safetensors")


def test_the_report_measures_base_and_adapter(trained: Any) -> None:
    folder, out = trained.folder, trained.folder / "measures.json"
    command = ["measure", "--data", str(folder / "data"), "--base", str(folder / "base")]
    command += ["--adapter", f"typed={folder / 'typed' / 'adapter'}", "--out", str(out)]
    command += ["--heads", "3", "--windows", "2", "--max-tokens", "12"]
    arguments = adapters.parser().parse_args(command)
    adapters.measure(arguments)
    result = json.loads(out.read_text())
    assert list(result["members"]) == ["base", "typed"]
    assert set(result["held_out"]) == {"typed", "terse", "ordinary", "turns"}
    base, typed = result["members"]["base"], result["members"]["typed"]
    assert typed["bits_per_byte"]["typed"] < base["bits_per_byte"]["typed"] - 0.05
    for member in (base, typed):
        assert len(member["texts"]) == result["heads"] == 3
        assert all(text.startswith("def name_5") for text in member["texts"])
        assert set(member["shares"]) >= {"typed_functions", "docstrings", "words_per_comment"}


def test_bytes_of_windows_are_those_of_their_text() -> None:
    documents = [f"def f_{i}(x):\n    return 'ü' * {i}\n" for i in range(300)]
    tokenizer = train_tokenizer(documents, VOCABULARY)
    held_out = style_report.held_out_windows(tokenizer, documents, 1, n_windows=5, length=64)
    assert len(held_out.batches) <= 5
    texts = [tokenizer.decode(batch.targets[0].tolist()) for batch in held_out.batches]
    assert held_out.n_bytes == sum(len(text.encode()) for text in texts)
    with pytest.raises(ValueError, match="window of 64 tokens"):
        style_report.held_out_windows(tokenizer, documents[:1], 1, n_windows=5, length=64)
