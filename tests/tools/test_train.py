"""The trainer: a deterministic corpus and tokenizer, a falling loss, and an exact resume."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
TINY_STREAM_TOKENS = 600


@pytest.fixture(autouse=True)
def importable_tools() -> Iterator[None]:
    """`tools` belongs to the repository, not to the installed package."""
    sys.path.insert(0, str(ROOT))
    yield
    sys.path.remove(str(ROOT))


def load(name: str) -> ModuleType:
    return importlib.import_module(f"tools.train.{name}")


def write_library(root: Path) -> None:
    body = "def function_{i}(value):\n    return value + {i}\n\n\nclass Thing{i}:\n    pass\n"
    for i in range(80):
        (root / f"module_{i:02}.py").write_text(body.replace("{i}", str(i)))
    (root / "copy_of_7.py").write_text(body.replace("{i}", "7"))
    (root / "table.py").write_text("TABLE = (\n" + "    'entry',\n" * 50 + ")\n")
    (root / "broken.py").write_text("print 'this was Python once'\n" * 10)
    (root / "_sysconfigdata_x.py").write_text(body)
    for folder in ("test", "site-packages/package", "package/tests"):
        (root / folder).mkdir(parents=True)
        (root / folder / "module.py").write_text(body.replace("{i}", "1000"))


def test_corpus_is_deterministic_and_leaves_out_what_it_says(tmp_path: Path) -> None:
    corpus = load("corpus")
    library = tmp_path / "library"
    library.mkdir()
    write_library(library)
    sizes = [corpus.write_corpus(library, tmp_path / out) for out in ("one", "two")]
    assert sizes[0] == sizes[1]
    for name in ("train.jsonl", "heldout.jsonl", "provenance.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    provenance = json.loads((tmp_path / "one" / "provenance.json").read_text())
    paths = [file["path"] for file in provenance["files"]]
    expected = {f"module_{i:02}.py" for i in range(80)} - {"module_07.py"} | {"copy_of_7.py"}
    assert set(paths) == expected
    assert paths == sorted(paths)
    assert provenance["licence"] == "PSF-2.0"
    assert sum(sizes[0].values()) == sum(file["n_bytes"] for file in provenance["files"])
    splits = {file["split"] for file in provenance["files"]}
    assert splits == {"train", "heldout"}
    n_documents = sum(len(corpus.read_documents(tmp_path / "one", split)) for split in splits)
    assert n_documents == len(paths)


def test_tokenizer_is_deterministic_and_lossless() -> None:
    tokenizer_module = load("tokenizer")
    documents = [f"def f_{i}(x):\n    return x * {i}  # naïve\n" for i in range(50)]
    one, two = (tokenizer_module.train_tokenizer(documents, 290) for _ in range(2))
    assert one.to_str() == two.to_str()
    assert one.token_to_id("<|endoftext|>") == tokenizer_module.END_OF_TEXT_ID
    text = "class A:\n\tdef f(self): return 'ü 漢 \x00'\r\n"
    assert one.decode(one.encode(text).ids, skip_special_tokens=False) == text
    with pytest.raises(ValueError, match="vocabulary_size is 4000"):
        tokenizer_module.train_tokenizer(documents, 4000)


@pytest.mark.parametrize("parts", [False, True])
def test_chat_template_is_the_last_user_message_verbatim(parts: bool) -> None:
    sandbox = pytest.importorskip("jinja2.sandbox", reason="the template needs jinja2")
    template = sandbox.ImmutableSandboxedEnvironment().from_string(load("tokenizer").CHAT_TEMPLATE)
    text = "\n  import os\n\ndef <b>&{{ x }} \n\n"
    content = [{"type": "text", "text": text[:9]}, {"type": "text", "text": text[9:]}]
    messages = [
        {"role": "system", "content": "You are terse."},
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "answer"},
        {"role": "user", "content": content if parts else text},
    ]
    assert template.render(messages=messages, add_generation_prompt=True) == text


def make_trainer(**overrides: object) -> object:
    torch = pytest.importorskip("torch", reason="training needs PyTorch")
    torch.set_num_threads(1)
    train, data = load("train"), load("data")
    config = load("config").ModelConfig(
        vocab_size=32,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=32,
    )
    settings = train.Settings(
        tokens=6 * 2 * 16, sequences=2, length=16, long_length=32, bfloat16=False, **overrides
    )
    stream = torch.arange(TINY_STREAM_TOKENS) * 7 % 31
    return train.Trainer(config, settings, data.Sampler(stream, seed=3))


def test_split_spaces_changes_tokens_but_not_text() -> None:
    torch = pytest.importorskip("torch", reason="training needs PyTorch")
    data = load("data")
    documents = [f"def f_{i}(x):\n    return x * {i}\n" for i in range(50)]
    tokenizer = load("tokenizer").train_tokenizer(documents, 290)
    stream = data.pack(tokenizer, documents, seed=1)
    text = tokenizer.decode(stream.tolist(), skip_special_tokens=False)
    assert torch.equal(data.split_spaces(stream, tokenizer, 0.0, seed=1), stream)
    every = data.split_spaces(stream, tokenizer, 1.0, seed=1)
    assert every.numel() > stream.numel()
    assert (data.space_splits(tokenizer)[every] < 0).all()
    assert tokenizer.decode(every.tolist(), skip_special_tokens=False) == text


def test_loss_falls() -> None:
    trainer = make_trainer()
    losses = [trainer.step() for _ in range(3)]
    assert losses[2] < losses[0]


def test_resume_gives_the_losses_of_an_unbroken_run(tmp_path: Path) -> None:
    unbroken = make_trainer()
    for _ in range(3):
        unbroken.step()
    unbroken.save(tmp_path / "checkpoint.safetensors")
    expected = [unbroken.step() for _ in range(3)]
    resumed = make_trainer()
    resumed.resume(tmp_path / "checkpoint.safetensors")
    assert resumed.progress.tokens == 3 * 2 * 16
    assert [resumed.step() for _ in range(3)] == expected


def test_a_pause_is_not_counted() -> None:
    ticks = iter([0.0, 1.0, 1.0, 2.0, 2.0, 5000.0])
    trainer = make_trainer()
    trainer.clock = lambda: next(ticks)
    for _ in range(3):
        trainer.step()
    assert trainer.progress.counted_s == 1.0 + 1.0 + load("train").PAUSE_FACTOR


def test_schedule_warms_up_decays_and_lengthens() -> None:
    pytest.importorskip("torch", reason="training needs PyTorch")
    settings = load("train").Settings(minutes=1.0)
    rates = [settings.learning_rate_at(share / 100) for share in range(101)]
    assert max(rates) == rates[2] == settings.learning_rate
    assert rates[2:] == sorted(rates[2:], reverse=True)
    assert rates[100] == pytest.approx(settings.learning_rate * settings.final_share)
    assert settings.batch_shape(0.0) == (16, 512)
    assert settings.batch_shape(0.99) == (8, 1024)
    with pytest.raises(ValueError, match="exactly one"):
        load("train").Settings().share_done(load("checkpoint").Progress())


def test_two_workers_learn_what_one_does(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="training needs PyTorch")
    safetensors = importlib.import_module("safetensors.torch")
    library = tmp_path / "library"
    library.mkdir()
    write_library(library)
    load("corpus").write_corpus(library, tmp_path)
    documents = load("corpus").read_documents(tmp_path, "train")
    # Held-out text has to fill one whole context.
    (tmp_path / "heldout.jsonl").write_text((tmp_path / "train.jsonl").read_text())
    tokenizer = load("tokenizer")
    tokenizer.write_tokenizer(tokenizer.train_tokenizer(documents, 290), tmp_path)
    weights = []
    for n_workers in (1, 2):
        out = tmp_path / f"run{n_workers}"
        command = [sys.executable, "-m", "tools.train.train", "--no-bfloat16", "--sequences", "4"]
        command += ["--tokens", "2048", "--workers", str(n_workers), "--out", str(out)]
        command += ["--corpus", str(tmp_path), "--tokenizer", str(tmp_path)]
        subprocess.run(command, cwd=ROOT, check=True, timeout=300)
        path = out / "checkpoint.safetensors"
        assert load("config").read_note(path)["progress"]["tokens"] == 2048
        weights.append(safetensors.load_file(path))
    for name, weight in weights[0].items():
        # AdamW's first step divides a gradient by itself: compare the gradient's average.
        if name.startswith("adamw.exp_avg."):
            torch.testing.assert_close(weights[1][name], weight, atol=1e-7, rtol=1e-3)


def test_model_agrees_with_hugging_face(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="training needs PyTorch")
    transformers = pytest.importorskip("transformers", reason="the comparison needs transformers")
    model = make_trainer().model
    config = transformers.LlamaConfig(**model.config.to_hugging_face())
    peer = transformers.LlamaForCausalLM(config).eval()
    missing, unexpected = peer.load_state_dict(model.state_dict(), strict=False)
    assert set(missing) <= {"lm_head.weight"}
    assert not unexpected
    peer.tie_weights()
    ids = torch.arange(20)[None] % 31
    with torch.no_grad():
        torch.testing.assert_close(model(ids), peer(ids).logits, atol=1e-5, rtol=1e-4)
