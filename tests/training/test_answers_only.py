"""Of a conversation only the answers are learnt; all of it is read."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="needs PyTorch (pip install torch)")

from tokenizers import Tokenizer  # noqa: E402

from tests.training.toy_models import VOCABULARY, random_model  # noqa: E402
from training.data.answers_only import IGNORED, answers_only, split  # noqa: E402
from training.data.packing import Sampler, pack  # noqa: E402
from training.data.tokenizer import train_tokenizer  # noqa: E402


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer([CONVERSATION], 300)


def turn(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


ASKED = turn("system", "Be brief.") + turn("user", "Complete this:\n```python\ndef f():\n```")
ANSWER, SECOND = "```python\ndef f(): pass\n```", "<think>\nWelcome?\n</think>\nWelcome."
CONVERSATION = (
    ASKED + turn("assistant", ANSWER) + turn("user", "Thanks") + turn("assistant", SECOND)
)


def test_answers_with_their_ends_are_learnt_and_nothing_else(tokenizer: Tokenizer) -> None:
    stream = pack(tokenizer, [CONVERSATION], seed=1)
    ids, targets = split(answers_only(stream, tokenizer))
    assert torch.equal(ids, stream)
    learnt = tokenizer.decode(targets[targets != IGNORED].tolist(), skip_special_tokens=False)
    assert learnt == f"{ANSWER}<|im_end|>{SECOND}<|im_end|>"


@pytest.mark.parametrize("text", ["", "a", turn("user", "Hello"), "<|im_start|>assistant\ncut off"])
def test_without_a_whole_answer_nothing_is_learnt(tokenizer: Tokenizer, text: str) -> None:
    _, targets = split(answers_only(pack(tokenizer, [text], seed=1), tokenizer))
    assert bool((targets == IGNORED).all())


def test_the_first_token_of_an_answer_is_a_target_of_the_header(tokenizer: Tokenizer) -> None:
    stream = answers_only(pack(tokenizer, [CONVERSATION] * 20, seed=1), tokenizer)
    batch = Sampler(stream, seed=3).next_batch(2, 64)
    assert int(batch.ids.min()) >= 0
    learnt = batch.targets != IGNORED
    assert 0 < int(learnt.sum()) < learnt.numel()
    assert torch.equal(batch.targets[:, :-1][learnt[:, :-1]], batch.ids[:, 1:][learnt[:, :-1]])


def test_ignored_targets_cost_nothing_and_count_in_the_mean() -> None:
    model = random_model(0)
    ids, targets = torch.randint(VOCABULARY, (2, 2, 8)).unbind()
    half = targets.clone()
    half[1] = IGNORED
    first = model.loss(ids[:1], targets[:1])
    assert torch.allclose(model.loss(ids, half), first / 2, rtol=1e-5)
