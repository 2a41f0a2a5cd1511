"""The trainer: the model is Qwen3, the optimizers do what they say, and a resumed run is exact."""

from __future__ import annotations

import math
import random
import subprocess
import sys
import threading
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.tools.toy_training import SHAPE, documents, write_data
from tools.train.data.tokenizer import (
    END_OF_TEXT_ID,
    FIM_MIDDLE_ID,
    FIM_PREFIX_ID,
    FIM_SUFFIX_ID,
    train_tokenizer,
)
from tools.train.models.config import read_note

torch = pytest.importorskip("torch", reason="training needs PyTorch")

from safetensors.torch import load_file, save_file  # noqa: E402

from tools.train.data import packing as data  # noqa: E402
from tools.train.data.cut_words import cut_words  # noqa: E402
from tools.train.loop import optimizer  # noqa: E402
from tools.train.loop.parallel import Workers  # noqa: E402
from tools.train.loop.trainer import MAX_STEP_S, Settings, Trainer, run  # noqa: E402
from tools.train.models.model import QUERY_BLOCK, LanguageModel, causal_attention  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
STEP_TOKENS = 128
N_STEPS = 6


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def settings_of(**others: Any) -> Settings:
    settings = Settings(
        tokens=N_STEPS * STEP_TOKENS,
        step_tokens=STEP_TOKENS,
        pass_tokens=64,
        length=16,
        long_length=32,
        bfloat16=False,
        compile=False,
    )
    return replace(settings, **others)


def trainer_of(**others: Any) -> Trainer:
    """A Trainer of a toy on two toy streams, always the same one."""
    torch.manual_seed(7)
    model = LanguageModel(SHAPE)
    sources = {
        "code": data.Sampler(torch.arange(3000, dtype=torch.int32) * 7 % 311, seed=3),
        "turns": data.Sampler(torch.arange(900, dtype=torch.int32) * 5 % 97, seed=4),
    }
    settings = settings_of(**others)
    return Trainer(model, model.loss, settings, sources, asdict(SHAPE), Workers())


def test_fill_in_the_middle_keeps_every_token_of_the_document() -> None:
    ids = list(range(100, 1100))
    found = data.rearranged(ids, random.Random(1))
    assert found == data.rearranged(ids, random.Random(1))
    pieces: list[list[int]] = [[]]
    for token in found:
        if token == END_OF_TEXT_ID:
            pieces.append([])
        else:
            pieces[-1].append(token)
    assert len(pieces) == math.ceil(len(ids) / data.FIM_TOKENS)
    whole = []
    for piece in pieces:
        assert piece[0] == FIM_PREFIX_ID
        suffix, middle = piece.index(FIM_SUFFIX_ID), piece.index(FIM_MIDDLE_ID)
        assert 0 < suffix < middle
        whole += piece[1:suffix] + piece[middle + 1 :] + piece[suffix + 1 : middle]
    assert whole == ids


def test_packing_rearranges_the_share_it_is_told() -> None:
    texts = documents(400)
    tokenizer = train_tokenizer(texts, 330)
    plain = data.pack(tokenizer, texts, seed=1)
    assert torch.equal(plain, data.pack(tokenizer, texts, seed=1))
    assert not torch.equal(plain, data.pack(tokenizer, texts, seed=2))
    assert int(plain[0]) == int(plain[-1]) == END_OF_TEXT_ID
    assert int((plain == END_OF_TEXT_ID).sum()) == len(texts) + 1
    decoded = tokenizer.decode(plain.tolist(), skip_special_tokens=False)
    assert sorted(filter(None, decoded.split("<|endoftext|>"))) == sorted(texts)
    mixed = data.pack(tokenizer, texts, seed=1, fim_share=0.25)
    assert 60 <= int((mixed == FIM_MIDDLE_ID).sum()) <= 140


def test_cut_words_change_tokens_but_not_text() -> None:
    texts = documents(50)
    tokenizer = train_tokenizer(texts, 330)
    stream = data.pack(tokenizer, texts, seed=1)
    text = tokenizer.decode(stream.tolist(), skip_special_tokens=False)
    assert torch.equal(cut_words(stream, tokenizer, 0.0, seed=1), stream)
    every, again = (cut_words(stream, tokenizer, 1.0, seed=1) for _ in range(2))
    assert torch.equal(every, again)
    assert tokenizer.decode(every.tolist(), skip_special_tokens=False) == text
    assert int((every == END_OF_TEXT_ID).sum()) == int((stream == END_OF_TEXT_ID).sum())
    # " return" is one token to the tokenizer, and none of the texts has it in one piece any more.
    whole = tokenizer.token_to_id("\u0120return")
    assert int((stream == whole).sum()) == len(texts)
    assert int((every == whole).sum()) == 0
    some = cut_words(stream, tokenizer, 0.2, seed=1)
    assert stream.numel() < some.numel() < every.numel()


def test_an_epoch_shows_every_window_once_and_the_next_cuts_elsewhere() -> None:
    sampler = data.Sampler(torch.arange(1001, dtype=torch.int32), seed=5)
    first = [sampler.next_batch(3, 10) for _ in range(33)]
    assert sampler.epoch == 0
    starts = torch.cat([batch.ids[:, 0] for batch in first])
    assert len(set(starts.tolist())) == 99
    assert len({start % 10 for start in starts.tolist()}) == 1
    for batch in first:
        assert torch.equal(batch.targets, batch.ids + 1)
    second = sampler.next_batch(3, 10)
    assert (sampler.epoch, sampler.position) == (1, 3)
    assert int(second.ids[0, 0]) % 10 != int(starts[0]) % 10
    with pytest.raises(ValueError, match="too few for a batch of 3 x 400"):
        sampler.next_batch(3, 400)


@pytest.mark.parametrize("length", [1, 5, QUERY_BLOCK, QUERY_BLOCK + 1, 2 * QUERY_BLOCK + 37])
def test_attention_is_pytorchs(length: int) -> None:
    generator = torch.Generator().manual_seed(length)
    q, k, v = (
        torch.randn(2, 3, length, 16, generator=generator, requires_grad=True) for _ in range(3)
    )
    ours = causal_attention(q, k, v)
    theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
    weights = torch.randn(ours.shape, generator=generator)
    ours_back = torch.autograd.grad((ours * weights).sum(), (q, k, v))
    theirs_back = torch.autograd.grad((theirs * weights).sum(), (q, k, v))
    for one, other in zip(ours_back, theirs_back, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_the_model_is_transformers_qwen3() -> None:
    transformers = pytest.importorskip("transformers", reason="the comparison needs transformers")
    torch.manual_seed(1)
    model = LanguageModel(SHAPE)
    with torch.no_grad():
        for parameter in model.parameters():  # norms begin at one, which would hide their names
            parameter.add_(0.05 * torch.randn(parameter.shape))
    peer = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SHAPE.to_hugging_face()))
    missing, unexpected = peer.load_state_dict(model.state_dict(), strict=False)
    assert set(missing) <= {"lm_head.weight"}
    assert not unexpected
    peer.tie_weights()
    ids = torch.randint(SHAPE.vocab_size, (2, QUERY_BLOCK + 44))
    with torch.no_grad():
        torch.testing.assert_close(model(ids), peer.eval()(ids).logits, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("shape", [(48, 48), (32, 80), (80, 32)])
def test_orthogonalized_keeps_directions_and_evens_out_sizes(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(2)
    rank = min(shape)
    left = torch.linalg.qr(torch.randn(shape[0], rank, generator=generator)).Q
    right = torch.linalg.qr(torch.randn(shape[1], rank, generator=generator)).Q
    sizes = torch.linspace(0.5, 4.0, rank)
    found = optimizer.orthogonalized(left @ torch.diag(sizes) @ right.T)
    assert found.dtype == torch.float32 and found.shape == shape
    # In the basis of the decomposition the result is about diagonal, with sizes about one.
    inside = left.T @ found @ right
    assert (inside.diagonal() > 0.6).all() and (inside.diagonal() < 1.3).all()
    assert (inside - torch.diag(inside.diagonal())).abs().max() < 0.1
    assert (found - left @ inside @ right.T).abs().max() < 0.05


class Exchange:
    """What `Workers.sum_over` needs between threads of one process: all add, then all read."""

    def __init__(self, count: int) -> None:
        self.barrier = threading.Barrier(count, timeout=30)
        self.offered: dict[int, list[Any]] = {}

    def sum_over(self, rank: int, tensors: list[Any]) -> None:
        self.offered[rank] = [tensor.clone() for tensor in tensors]
        self.barrier.wait()
        for index, tensor in enumerate(tensors):
            tensor.copy_(sum(offered[index] for offered in self.offered.values()))
        self.barrier.wait()


class ThreadWorkers(Workers):
    """Workers that are threads."""

    exchange: Exchange

    def sum_over(self, tensors: Any) -> None:
        self.exchange.sum_over(self.rank, list(tensors))


def muon_weights(workers: Workers) -> list[Any]:
    """Three matrices after three steps of Muon on gradients that are always the same."""
    generator = torch.Generator().manual_seed(4)
    weights = [
        torch.nn.Parameter(torch.randn(shape, generator=generator))
        for shape in ((16, 16), (8, 24), (24, 8))
    ]
    muon = optimizer.Muon(weights, 0.02, 0.1, workers)
    for _ in range(3):
        for weight in weights:
            weight.grad = torch.randn(weight.shape, generator=generator)
        muon.step()
    return [weight.detach() for weight in weights]


def test_two_workers_share_the_work_of_muon_and_get_what_one_does() -> None:
    alone = muon_weights(Workers())
    exchange = Exchange(2)
    found: dict[int, list[Any]] = {}

    def work(rank: int) -> None:
        workers = ThreadWorkers(rank, 2)
        object.__setattr__(workers, "exchange", exchange)
        found[rank] = muon_weights(workers)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == [0, 1]
    for weights in found.values():
        for one, other in zip(weights, alone, strict=True):
            torch.testing.assert_close(one, other, atol=0, rtol=0)


def test_matrices_inside_the_layers_go_to_muon_and_the_rest_to_adamw() -> None:
    model = LanguageModel(SHAPE)
    model.model.norm.weight.requires_grad_(False)
    muon, adamw = optimizer.make_optimizers(
        model, Workers(), muon_learning_rate=0.02, adamw_learning_rate=0.004, weight_decay=0.1
    )
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    inner = {names[id(p)] for group in muon.param_groups for p in group["params"]}
    other = {names[id(p)] for group in adamw.param_groups for p in group["params"]}
    assert len(inner) == 7 * SHAPE.num_hidden_layers and all(".layers." in name for name in inner)
    assert inner | other == set(names.values()) - {"model.norm.weight"}
    assert "model.embed_tokens.weight" in other
    assert [group["peak_lr"] for group in muon.param_groups] == [0.02]


def test_the_schedule_warms_up_falls_and_lengthens() -> None:
    settings = Settings(tokens=1)
    rates = [settings.rate_at(share / 100) for share in range(101)]
    assert 0 < rates[0] < rates[1] < rates[2] == max(rates) == 1.0
    assert rates[2:] == sorted(rates[2:], reverse=True)
    assert rates[100] == pytest.approx(settings.final_share)
    assert settings.rate_at(1.5) == pytest.approx(settings.final_share)
    assert [settings.length_at(share) for share in (0.0, 0.89, 0.9, 1.0)] == [512, 512, 2048, 2048]
    assert [settings.turns_at(share) for share in (0.0, 0.59, 0.6, 0.9)] == [0.0, 0.0, 0.2, 0.2]
    settings = Settings(tokens=1000, long_turns_share=0.5)
    assert [settings.turns_at(share) for share in (0.59, 0.6, 0.89, 0.9)] == [0.0, 0.2, 0.2, 0.5]


def test_batches_are_of_the_schedules_shape_and_sources() -> None:
    trainer = trainer_of(turns_share=0.25)
    assert trainer.next_batch().ids.shape == (8, 16)
    trainer.progress.tokens = round(0.7 * trainer.settings.tokens)
    batch = trainer.next_batch()
    # The stream of turns holds no id of 97 and above.
    assert [bool((row < 97).all()) for row in batch.ids] == [False] * 6 + [True] * 2
    trainer.progress.tokens = round(0.95 * trainer.settings.tokens)
    assert trainer.next_batch().ids.shape == (4, 32)


def test_turns_that_are_asked_for_must_be_there() -> None:
    model = LanguageModel(SHAPE)
    sources = {"code": data.Sampler(torch.arange(3000), seed=3)}
    with pytest.raises(ValueError, match=r"turns_share is 0\.2, but there is no source of turns"):
        Trainer(model, model.loss, settings_of(), sources, asdict(SHAPE), Workers())


def test_the_loss_falls() -> None:
    trainer = trainer_of(tokens=20 * STEP_TOKENS, turns_share=0.0)
    losses = [trainer.step() for _ in range(12)]
    assert losses[0] == pytest.approx(math.log(SHAPE.vocab_size), rel=0.1)
    assert losses[11] < losses[0] - 0.5


def test_passes_of_a_step_add_up_to_the_whole_batch() -> None:
    """Gradients over four passes are those over one."""
    one, four = trainer_of(pass_tokens=STEP_TOKENS), trainer_of(pass_tokens=STEP_TOKENS // 4)
    assert one.step() == pytest.approx(four.step(), rel=1e-5)
    for left, right in zip(one.model.parameters(), four.model.parameters(), strict=True):
        # Muon rounds to bfloat16 on the way, so that nothing closer can be asked.
        torch.testing.assert_close(left, right, atol=2e-3, rtol=0)


def stopping_after(n_steps: int, trainer: Trainer) -> Any:
    class Stop:
        @property
        def asked(self) -> bool:
            return trainer.progress.step >= n_steps

    return Stop()


def test_a_stopped_run_resumes_to_the_weights_of_an_unbroken_one(tmp_path: Path) -> None:
    held_out = [data.windows(torch.arange(200) % 300, 32, 2)[0]]
    results = {}
    for name, stops in (("unbroken", []), ("stopped", [2, 5])):
        out = tmp_path / name
        out.mkdir()
        for after in [*stops, N_STEPS + 1]:
            trainer = trainer_of()
            saved = out / "checkpoint.safetensors"
            if saved.exists():
                trainer.resume(saved)
            stop = stopping_after(after, trainer)
            finished = run(trainer, held_out, 500, out, save_every_s=1e9, stop=stop)
            assert finished is (after > N_STEPS)
        results[name] = trainer
    for left, right in zip(
        results["unbroken"].model.parameters(), results["stopped"].model.parameters(), strict=True
    ):
        assert torch.equal(left, right)
    for name in results:
        progress = read_note(tmp_path / name / "checkpoint.safetensors")["progress"]
        assert progress["tokens"] == N_STEPS * STEP_TOKENS
        assert progress["heldout_loss"] == results["unbroken"].progress.heldout_loss
        # Nats over the windows, per byte, in bits.
        nats = progress["heldout_loss"] * held_out[0].ids.numel()
        assert progress["heldout_bits_per_byte"] == pytest.approx(nats / 500 / math.log(2))


def test_a_pause_is_not_counted() -> None:
    trainer = trainer_of()
    ticks = iter([0.0, 1.0, 1.0, 2.0, 2.0, 5000.0])
    trainer.clock = lambda: next(ticks)
    for _ in range(3):
        trainer.step()
    assert trainer.progress.counted_s == 1.0 + 1.0 + MAX_STEP_S


def test_a_checkpoint_of_another_shape_is_refused(tmp_path: Path) -> None:
    trainer = trainer_of()
    trainer.save(tmp_path / "checkpoint.safetensors")
    trainer.shape = {**trainer.shape, "num_hidden_layers": 9}
    with pytest.raises(ValueError, match="give --out another folder or add --fresh"):
        trainer.resume(tmp_path / "checkpoint.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.safetensors"]


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    save_file({"x": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match="was not written by"):
        trainer_of().resume(path)


def train_toy(folder: Path, out: str, *flags: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.tools.toy_member", "--data", str(folder)]
    command += ["--out", str(folder / out), "--no-compile", "--no-bfloat16", *flags]
    subprocess.run(command, cwd=ROOT, check=True, timeout=300)
    weights: dict[str, Any] = load_file(folder / out / "checkpoint.safetensors")
    return weights


def test_two_workers_learn_what_one_does(tmp_path: Path) -> None:
    write_data(tmp_path)
    # One step: what follows passes through Muon's bfloat16, which makes small differences large.
    flags = ("--tokens", "1024", "--workers")
    alone, shared = (train_toy(tmp_path, f"run{n}", *flags, str(n)) for n in (1, 2))
    progress = [
        read_note(tmp_path / f"run{n}" / "checkpoint.safetensors")["progress"] for n in (1, 2)
    ]
    assert [entry["tokens"] for entry in progress] == [1024, 1024]
    losses = [entry["heldout_loss"] for entry in progress]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert 0 < progress[1]["heldout_bits_per_byte"] < 8
    assert list((tmp_path / "streams").iterdir())
    # After one step the averages that optimizers keep are the gradient's own, times a constant.
    averages = [name for name in alone if ".exp_avg." in name or ".momentum." in name]
    assert {name.split(".")[1] for name in averages} == {"exp_avg", "momentum"}
    for name in averages:
        torch.testing.assert_close(shared[name], alone[name], atol=1e-6, rtol=1e-3)
