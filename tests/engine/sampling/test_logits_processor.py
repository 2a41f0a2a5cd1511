"""What a request does to its logits: each rule by itself, and transformers' processors beside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.engine.params import SamplingParams
from headrace.engine.sampling.logits_processor import LogitsProcessor, needs_logits_processor
from headrace.ops.adjustment import adjust

WIDTH = 30
END = frozenset({7, 25, 29})
NUM_TOKENS = 28


def logits(seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(WIDTH) * 4).astype(np.float32)


def after(
    prompt: list[int], output: list[int], seed: int = 0, end: frozenset[int] = END, **params: Any
) -> np.ndarray:
    """One row of logits, as it is sampled from."""
    wanted = SamplingParams(**params)
    assert needs_logits_processor(wanted)
    change = LogitsProcessor(wanted, prompt, end, NUM_TOKENS).edit(1, prompt + output)
    rows = np.stack([logits(seed)] * 3)
    if change is not None:
        adjust(rows, [change])
    assert (rows[0] == logits(seed)).all()
    assert (rows[2] == logits(seed)).all()
    return rows[1]


def masked(prompt: list[int], output: list[int], **params: Any) -> set[int]:
    """Ids that cannot come; nothing else has changed."""
    row = after(prompt, output, **params)
    gone = np.isneginf(row)
    assert (row[~gone] == logits()[~gone]).all()
    return set(np.flatnonzero(gone).tolist())


def test_bias_is_added() -> None:
    row = after([1], [2], logit_bias={3: 1.5, 9: -100.0})
    expected = logits()
    expected[3] += np.float32(1.5)
    expected[9] -= np.float32(100)
    assert (row == expected).all()


def test_only_allowed_ids_are_left() -> None:
    assert masked([1], [], allowed_token_ids=(4, 2, 4)) == set(range(WIDTH)) - {2, 4}


def test_ends_are_masked_until_there_are_enough_tokens() -> None:
    """An end id that is padding cannot be drawn anyway."""
    ends = {7, 25, 3}
    wanted = {"min_tokens": 2, "stop_token_ids": (3,)}
    assert masked([1, 7], [], **wanted) == ends
    assert masked([1, 7], [4], **wanted) == ends
    assert masked([1, 7], [4, 5], **wanted) == set()
    assert masked([1], [], end=frozenset(), **wanted) == {3}
    assert masked([1], [], end=frozenset(), min_tokens=3) == set()


def test_bad_words_are_kept_from_being_finished() -> None:
    words = {"bad_words_token_ids": ((9,), (1, 2), (3, 1, 4), (1, 1, 5))}
    assert masked([1, 3, 1], [], **words) == {9}, "what the prompt says begins no word"
    assert masked([3], [1], **words) == {9, 2}
    assert masked([1], [3, 1], **words) == {9, 2, 4}
    assert masked([1], [1, 1], **words) == {9, 2, 5}
    assert masked([1], [1, 3, 1, 6], **words) == {9}


def test_penalties_are_of_prompt_and_output_as_they_should_be() -> None:
    plain = logits()
    prompt, output = [1, 2, 2], [2, 4, 4, 4]
    row = after(prompt, output, repetition_penalty=1.5)
    for token_id in range(WIDTH):
        want = plain[token_id]
        if token_id in prompt + output:
            want = want / np.float32(1.5) if want > 0 else want * np.float32(1.5)
        assert row[token_id] == want
    assert {bool(plain[each] > 0) for each in prompt + output} == {True, False}
    row = after(prompt, output, frequency_penalty=0.25, presence_penalty=-1)
    expected = plain.copy()
    expected[2] += np.float32(1 - 0.25)
    expected[4] += np.float32(1 - 0.75)
    np.testing.assert_allclose(row, expected, rtol=1e-6)


def test_bias_comes_before_penalties_and_masks_stay() -> None:
    row = after(
        [3], [4], logit_bias={3: 50.0}, bad_words_token_ids=((4,),), repetition_penalty=2.0,
        frequency_penalty=-2.0,
    )  # fmt: skip
    assert row[3] == (logits()[3] + np.float32(50)) / np.float32(2)
    assert row[4] == -np.inf


def test_params_decide_whether_there_is_a_processor() -> None:
    plain = SamplingParams(temperature=0.3, top_p=0.9, top_k=5, min_p=0.1, stop_token_ids=(3,))
    assert not needs_logits_processor(plain)
    for params in (
        {"repetition_penalty": 1.1},
        {"frequency_penalty": 0.1},
        {"presence_penalty": -0.1},
        {"logit_bias": {1: 0.0}},
        {"allowed_token_ids": (1,)},
        {"bad_words_token_ids": ((1,),)},
        {"min_tokens": 1},
        {"samplers": ("top_p",)},
    ):
        assert needs_logits_processor(SamplingParams(**params)), params  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("params", "stages", "penalties_first"),
    [
        ({"top_p": 0.5, "samplers": ("top_p",)}, None, False),
        ({"top_p": 0.5, "temperature": 0.5, "samplers": ("temperature", "top_p")}, None, False),
        (
            {"top_p": 0.5, "temperature": 0.5, "samplers": ("top_p", "top_k", "temperature")},
            ("top_p", "temperature"),
            False,
        ),
        (
            {"presence_penalty": 1, "samplers": ("temperature", "top_k", "penalties")},
            None,
            True,
        ),
        (
            {"presence_penalty": 1, "temperature": 2, "samplers": ("temperature", "penalties")},
            ("temperature", "penalties"),
            False,
        ),
        (
            {
                "presence_penalty": 1,
                "temperature": 2,
                "top_k": 4,
                "samplers": ("penalties", "top_k", "temperature"),
            },
            ("top_k", "temperature"),
            True,
        ),
    ],
)
def test_an_order_that_comes_to_the_default_is_the_default(
    params: dict[str, Any], stages: tuple[str, ...] | None, penalties_first: bool
) -> None:
    processor = LogitsProcessor(SamplingParams(**params), [1], END, NUM_TOKENS)
    chain = processor.chain([1, 2])
    assert processor.reorders == (stages is not None)
    change = processor.edit(0, [1, 2])
    assert (change is not None and change.penalties is not None) == penalties_first
    if stages is None:
        assert chain is None
    else:
        assert chain is not None
        assert chain.stages == stages
        assert (chain.penalties is not None) == ("penalties" in stages)


@pytest.mark.torch
@pytest.mark.parametrize("seed", range(5))
def test_transformers_processors_agree(seed: int) -> None:
    torch = pytest.importorskip("torch", reason="torch is only in the oracles' environment")
    processors = pytest.importorskip(
        "transformers.generation.logits_process", reason="transformers is the oracle here"
    )
    rng = np.random.default_rng(seed)
    prompt, output = rng.integers(0, WIDTH, 6).tolist(), rng.integers(0, WIDTH, 9).tolist()
    text, scores = torch.tensor([prompt + output]), torch.tensor(logits(seed))[None]

    def by(processor: Any, ids: Any = text) -> np.ndarray:
        return processor(ids, scores.clone())[0].numpy()

    for penalty in (0.7, 1.3):
        expected = by(processors.RepetitionPenaltyLogitsProcessor(penalty))
        got = after(prompt, output, seed, repetition_penalty=penalty)
        np.testing.assert_allclose(got, expected, rtol=1e-6)
    words = [[output[-1], 5], [output[-2], output[-1], 8], [output[0], 11], [13]]
    expected = by(processors.NoBadWordsLogitsProcessor(words, eos_token_id=torch.tensor([29])))
    got = after(prompt, output, seed, bad_words_token_ids=tuple(map(tuple, words)))
    np.testing.assert_array_equal(got, expected)
    expected = by(
        processors.MinNewTokensLengthLogitsProcessor(len(prompt), 10, [7, 25], device="cpu")
    )
    np.testing.assert_array_equal(after(prompt, output, seed, min_tokens=10), expected)
    bias = {3: 2.5, 9: -7.0}
    expected = by(processors.SequenceBiasLogitsProcessor([[[k], v] for k, v in bias.items()]))
    np.testing.assert_array_equal(after(prompt, output, seed, logit_bias=bias), expected)
    # OpenAI's formula: logit - count * frequency - (count > 0) * presence, of the output alone.
    counts = torch.bincount(torch.tensor(output), minlength=WIDTH)
    want = (scores[0] - 0.3 * counts - 0.8 * (counts > 0)).numpy()
    got = after(prompt, output, seed, frequency_penalty=0.3, presence_penalty=0.8)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
