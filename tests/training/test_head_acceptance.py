"""Acceptance of a head: its depths over a continuation say what real chains of it do."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, fields
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="measuring models needs PyTorch")

from tests.training.toy_models import (  # noqa: E402
    STORED_SHAPE,
    STORED_VOCABULARY,
    VOCABULARY,
    random_model,
    write_checkpoint,
    write_held_out,
)
from training.data.packing import pack  # noqa: E402
from training.data.tokenizer import TURN_END_ID, train_tokenizer  # noqa: E402
from training.head import HeadObjective, export_head  # noqa: E402
from training.loop import checkpoint  # noqa: E402
from training.measure import acceptance, head_acceptance, kinds_of_text  # noqa: E402
from training.measure.head_acceptance import HeadGuesses, open_head, right_in_a_row  # noqa: E402
from training.measure.predictor import ModulePredictor, continued  # noqa: E402
from training.models.head_config import NORMED, HeadConfig  # noqa: E402
from training.models.head_model import Head, features_of  # noqa: E402
from training.models.heads import make_head  # noqa: E402
from training.models.model import LanguageModel  # noqa: E402

CONFIGS = {
    kind: HeadConfig(
        kind=kind, feature_layers=layers, vocab_size=34, intermediate_size=24,
        num_attention_heads=2, num_key_value_heads=1,
    )
    for kind, layers in (("eagle3", (0, 1, 2)), ("mtp", (NORMED,)))
}  # fmt: skip
TOKEN_IDS = list(range(3, 37))
STEPS = 40


def trained_head(kind: str, base: LanguageModel) -> Head:
    """A head that is sometimes right about what `base` says."""
    generator = torch.Generator().manual_seed(3)
    prefixes = torch.randint(VOCABULARY, (32, 8), generator=generator)
    ids = torch.cat((prefixes, continued(ModulePredictor(base, bfloat16=False), prefixes, 16)), 1)
    torch.manual_seed(5)
    head = make_head(CONFIGS[kind], base, TOKEN_IDS)
    objective = HeadObjective(head, base, TOKEN_IDS)
    optimizer = torch.optim.AdamW(head.parameters(), lr=0.01)
    for _ in range(STEPS):
        optimizer.zero_grad()
        objective(ids, ids).backward()
        optimizer.step()
    return head


def proposals_of(head: Head, base: LanguageModel, ids: list[int], n_drafted: int) -> list[int]:
    """A chain behind `ids`, one proposal after another: the base has not read the last of them."""
    features, _ = features_of(base, torch.tensor([ids[:-1]]), head.config.feature_layers)
    states = head.begin(features)
    tokens = list(ids)
    for _ in range(n_drafted):
        length = states.shape[1]
        embedded = base.model.embed_tokens(torch.tensor([tokens[1:]]))
        logits, out = head.guess(embedded, states, head.cos[:length], head.sin[:length], [])
        tokens.append(TOKEN_IDS[int(logits[:, -1].argmax())])
        states = torch.cat((states, out[:, -1:]), dim=1)
    return tokens[len(ids) :]


def chains(
    head: Head, base: LanguageModel, prefix: list[int], n_tokens: int, n_drafted: int
) -> list[int]:
    """How many proposals each pass of speculative decoding takes, done as it is in earnest."""

    def said(ids: list[int]) -> int:
        return int(base(torch.tensor([ids]))[0, -1].argmax())

    ids, accepted = list(prefix), []
    while len(ids) - len(prefix) + n_drafted <= n_tokens:
        proposals = proposals_of(head, base, ids, n_drafted)
        taken = 0
        while taken < n_drafted and said(ids + proposals[:taken]) == proposals[taken]:
            taken += 1
        ids += proposals[:taken]
        ids.append(said(ids))
        accepted.append(taken)
    return accepted


@pytest.mark.parametrize("kind", CONFIGS)
def test_acceptance_is_that_of_real_chains(kind: str) -> None:
    base = random_model(seed=1)
    head = trained_head(kind, base)
    predictor = ModulePredictor(base, bfloat16=False)
    prefixes = torch.randint(VOCABULARY, (8, 8), generator=torch.Generator().manual_seed(4))
    guesses = HeadGuesses(head, predictor, torch.tensor(TOKEN_IDS))
    found = head_acceptance.head_acceptance(guesses, prefixes, n_tokens=20, max_drafted=4)
    assert 0.0 < found.alpha < 1.0
    assert (found.n_prefixes, found.prefix_tokens, found.continued_tokens) == (8, 8, 20)
    assert [drafting.n_drafted for drafting in found.drafting] == [1, 2, 3, 4]
    with torch.no_grad():
        for drafting in found.drafting:
            expected = [
                taken
                for prefix in prefixes.tolist()
                for taken in chains(head, base, prefix, 20, drafting.n_drafted)
            ]
            assert drafting.n_passes == len(expected)
            assert drafting.accepted == pytest.approx(sum(expected) / len(expected))
    # A later guess is not what a first one would be there.
    first, second = guesses.guesses(prefixes, 2).unbind(dim=1)
    assert (first != second).any()


def test_a_chain_is_right_as_far_as_its_depths_agree_in_a_row() -> None:
    first, second, third = [1, 1, 0, 1], [1, 0, 1, 1], [1, 1, 1, 0]
    agreed = torch.tensor([[first, second, third]], dtype=torch.bool)
    # At place 1 depth 0 is right, and so is depth 1 at place 2; then depth 2 at place 3 is not.
    assert right_in_a_row(agreed).tolist() == [[1, 2, 0, 1]]
    everywhere = torch.ones(1, 3, 4, dtype=torch.bool)
    assert right_in_a_row(everywhere).tolist() == [[3, 3, 2, 1]]
    assert right_in_a_row(everywhere[:, :, :2]).tolist() == [[2, 1]]


def test_places_behind_an_end_do_not_count_by_position() -> None:
    following = torch.tensor([[9, 9, TURN_END_ID, 9, 9], [9, 9, 9, 9, 9]])
    first = torch.tensor([[1, 1, 1, 0, 0], [1, 0, 1, 1, 1]], dtype=torch.bool)
    second = torch.tensor([[1, 1, 0, 1, 1], [1, 1, 1, 0, 1]], dtype=torch.bool)
    found = head_acceptance.by_position(following, torch.stack((first, second), dim=1))
    # Places 0 and 1 of the first and 0 to 3 of the second have room. Only at place 1 of the second
    # is the first proposal wrong; both are right at places 0, and at place 3 of the second.
    assert found is not None and (found.n_prefixes, found.n_places) == (2, 6)
    assert found.shares == pytest.approx((5 / 6, 3 / 6))
    ended = torch.full((1, 5), TURN_END_ID)
    assert head_acceptance.by_position(ended, torch.ones(1, 2, 5).bool()) is None


def test_prefixes_of_answers_end_where_the_answer_begins() -> None:
    texts = [f"<|im_start|>user\nq {i}<|im_end|>\n<|im_start|>assistant\na {i}" for i in range(9)]
    tokenizer = train_tokenizer(["def f(x):\n    return x\n" * 9, *texts], STORED_VOCABULARY)
    stream = pack(tokenizer, texts, 0).long()
    found = kinds_of_text.before_answers(stream, tokenizer, 4, 12)
    header = tokenizer.encode("<|im_start|>assistant\n").ids
    assert found.shape == (4, 12)
    assert all(line[-len(header) :] == header for line in found.tolist())
    assert len(kinds_of_text.before_answers(stream, tokenizer, 100, 12)) <= len(texts)
    assert kinds_of_text.before_answers(stream, tokenizer, 4, len(stream)).shape == (0, len(stream))


def test_what_repeats_ends_with_its_beginning() -> None:
    assert kinds_of_text.repeated(torch.arange(8)[None]).tolist() == [[0, 1, 2, 3, 4, 5, 0, 1]]


def test_a_token_that_the_head_does_not_know_is_never_guessed() -> None:
    base = random_model(seed=1)
    guesses = HeadGuesses(
        make_head(CONFIGS["eagle3"], base, TOKEN_IDS),
        ModulePredictor(base),
        torch.tensor(TOKEN_IDS),
    )
    ids = torch.randint(VOCABULARY, (4, 12), generator=torch.Generator().manual_seed(4))
    found = guesses.guesses(ids, 3)
    assert found.shape == (4, 3, 11)
    assert set(found.flatten().tolist()) <= set(TOKEN_IDS)
    with pytest.raises(ValueError, match="give at least 2"):
        head_acceptance.head_acceptance(guesses, ids[:, :1], 4, 2)


def write_head(path: Path, base: LanguageModel) -> None:
    """A run's checkpoint of a head that says what its table of the base's tokens says."""
    token_ids = list(range(0, STORED_VOCABULARY, 2))
    config = HeadConfig(
        feature_layers=(0, 1, 2), vocab_size=len(token_ids), intermediate_size=24,
        num_attention_heads=2, num_key_value_heads=1,
    )  # fmt: skip
    torch.manual_seed(2)
    stated = {**asdict(config), "feature_layers": list(config.feature_layers)}
    shape = {"head": stated, "base": asdict(STORED_SHAPE), "token_ids": token_ids}
    head = make_head(config, base, token_ids)
    checkpoint.save(path, head, [], checkpoint.Progress(), {}, shape)


def test_the_report_has_the_documented_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_held_out(tmp_path)
    base, run, out = (tmp_path / name for name in ("base.safetensors", "head.st", "out.json"))
    write_head(run, write_checkpoint(base, seed=1))
    export_head(run, tmp_path / "folder", eight_bits=False)
    for module in (acceptance, kinds_of_text):
        monkeypatch.setattr(module, "PREFIX_TOKENS", 8)
    options = ["--data", str(tmp_path), "--json", str(out), "--prefixes", "3"]
    figures = []
    for head in (run, tmp_path / "folder"):
        monkeypatch.setattr(sys, "argv", ["head_acceptance", str(base), str(head), *options])
        head_acceptance.main()
        report = json.loads(out.read_text())
        keys = {"base", "head", "precision", "cpu_s", "figures", "date", "kinds"}
        assert set(report) == keys
        # No conversations and no documents but code were held out here.
        assert set(report["kinds"]) == {"code", "repetition"}
        assert 0 < report["kinds"]["code"]["n_places"] <= 3 * 61
        assert report["head"] == str(head)
        figures.append(report["figures"])
    assert figures[0] == figures[1]
    assert set(figures[0]) == {field.name for field in fields(acceptance.Acceptance)}
    assert [drafting["n_drafted"] for drafting in figures[0]["drafting"]] == list(range(1, 9))
    assert "3 prefixes" in capsys.readouterr().out


def test_the_head_of_another_base_is_refused(tmp_path: Path) -> None:
    base, run = tmp_path / "base.safetensors", tmp_path / "head.safetensors"
    write_head(run, write_checkpoint(base, seed=1))
    other = ModulePredictor(random_model(seed=1))
    with pytest.raises(ValueError, match="give the base that it was trained with"):
        open_head(run, other)
    with pytest.raises(ValueError, match="is not of a head"):
        open_head(base, other)
