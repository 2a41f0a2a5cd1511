"""Baselines: an n-gram model against a slow direct twin, compressors against their definition."""

from __future__ import annotations

import gzip
import json
import lzma
import random
import sys
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest

from training.data.tokenizer import train_tokenizer
from training.measure import baselines, ngram

BOUNDARY = 0


def random_documents(n_symbols: int, seed: int, n_documents: int = 30) -> list[list[int]]:
    """Documents of skewed symbols, so that every count from 1 up occurs."""
    draw = random.Random(seed)
    symbols = range(1, n_symbols)
    weights = [1.0 / symbol**1.5 for symbol in symbols]
    return [draw.choices(symbols, weights, k=draw.randrange(40)) for _ in range(n_documents)]


class SlowTwin:
    """Interpolated modified Kneser-Ney, written down from its definition with dictionaries."""

    def __init__(self, documents: list[list[int]], n_symbols: int, order: int) -> None:
        self.n_symbols, self.order = n_symbols, order
        grams: Counter[tuple[int, ...]] = Counter()
        for document in documents:
            padded = [BOUNDARY] * (order - 1) + document + [BOUNDARY]
            for end in range(order, len(padded) + 1):
                grams[tuple(padded[end - order : end])] += 1
        self.counts: dict[int, Counter[tuple[int, ...]]] = {order: grams}
        for length in range(order - 1, 0, -1):
            self.counts[length] = Counter(gram[1:] for gram in self.counts[length + 1])
        self.discounts = {}
        for length, counts in self.counts.items():
            n = Counter(counts.values())
            self.discounts[length] = (0.5, 1.0, 1.5)
            if all(n[count] for count in (1, 2, 3, 4)):
                ratio = n[1] / (n[1] + 2 * n[2])
                found = tuple(i - (i + 1) * ratio * n[i + 1] / n[i] for i in (1, 2, 3))
                if all(0 <= value <= i for i, value in enumerate(found, start=1)):
                    self.discounts[length] = found
        self.of_context: dict[int, dict[tuple[int, ...], list[int]]] = {}
        for length, counts in self.counts.items():
            self.of_context[length] = defaultdict(list)
            for gram, count in counts.items():
                self.of_context[length][gram[:-1]].append(count)

    def probability(self, context: tuple[int, ...], symbol: int) -> float:
        length = len(context) + 1
        shorter = self.probability(context[1:], symbol) if context else 1.0 / self.n_symbols
        following = self.of_context[length].get(context)
        if following is None:
            return shorter
        taken = self.discounts[length]
        count = self.counts[length][(*context, symbol)]
        own = count - taken[min(count, 3) - 1] if count else 0.0
        left = sum(taken[min(c, 3) - 1] for c in following)
        return (own + left * shorter) / sum(following)


@pytest.mark.parametrize(("n_symbols", "order"), [(4, 3), (7, 5), (20, 2), (3, 1), (2, 4)])
@pytest.mark.parametrize("at_once", [50, 10_000])
def test_ngram_is_its_slow_twin(
    n_symbols: int, order: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ngram, "AT_ONCE", at_once)
    documents = random_documents(n_symbols, seed=order)
    arrays = [np.array(document, dtype=np.uint8) for document in documents]
    model = ngram.train(arrays, n_symbols, BOUNDARY, order)
    twin = SlowTwin(documents, n_symbols, order)
    for document in random_documents(n_symbols, seed=100 + order, n_documents=8):
        padded = [BOUNDARY] * (order - 1) + document
        expected = [
            twin.probability(tuple(padded[place : place + order - 1]), symbol)
            for place, symbol in enumerate(document)
        ]
        found = model.probabilities(np.array(document, dtype=np.int64))
        assert found == pytest.approx(np.array(expected), rel=1e-12)


@pytest.mark.parametrize("before", [[], [1], [3, 1, 2, 1, 1, 1], [2, 2, 2, 2, 2, 2]])
def test_ngram_probabilities_sum_to_one(before: list[int]) -> None:
    documents = [np.array(document) for document in random_documents(6, seed=4)]
    model = ngram.train(documents, 6, BOUNDARY, 5)
    distribution = model.distribution(before)
    assert distribution.sum() == pytest.approx(1.0, abs=1e-12)
    assert distribution.min() > 0.0
    again = model.probabilities(np.array([*before, 3]))
    assert again[-1] == pytest.approx(distribution[3], rel=1e-12)


def test_ngram_discounts_are_chen_and_goodmans() -> None:
    counts = np.repeat(np.array([1, 2, 3, 4, 9]), [100, 40, 20, 12, 5])
    ratio = 100 / 180
    assert ngram.discounts(counts) == pytest.approx(
        (1 - 2 * ratio * 0.4, 2 - 3 * ratio * 0.5, 3 - 4 * ratio * 0.6)
    )
    assert ngram.discounts(np.array([1, 1, 2])) == (0.5, 1.0, 1.5)
    rising = np.repeat(np.array([1, 2, 3, 4]), [10, 10, 100, 1000])
    assert ngram.discounts(rising) == (0.5, 1.0, 1.5)


def test_ngram_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="at most 5 is possible"):
        ngram.train([np.array([1])], 8192, BOUNDARY, 6)
    with pytest.raises(ValueError, match="no documents"):
        ngram.train([], 10, BOUNDARY, 3)


def test_ngram_of_8192_symbols_keeps_the_oldest_apart() -> None:
    """Five symbols of 13 bits are 65 bits: the oldest must not lose its highest."""
    documents = [np.array([8191 - oldest, 5, 5, 5, 100 + oldest]) for oldest in (0, 4096)]
    model = ngram.train(documents, 8192, BOUNDARY)
    for oldest in (0, 4096):
        own, other = (
            model.probabilities(np.array([8191 - oldest, 5, 5, 5, 100 + last]))[-1]
            for last in (oldest, 4096 - oldest)
        )
        assert own > 2 * other


def test_compressed_sizes_are_the_programs_own() -> None:
    text = b"def f(x):\n    return x\n" * 40
    alone = baselines.compressed(baselines.gzip_bytes, text, b"", "alone")
    assert alone.n_heldout_bits == 8 * len(gzip.compress(text, 9, mtime=0))
    assert alone.bits_per_byte == alone.n_heldout_bits / len(text)
    assert alone.n_train_bytes == 0
    sample = random.Random(1).randbytes(3000)
    preset = 9 | lzma.PRESET_EXTREME
    added = len(lzma.compress(sample + sample, preset=preset)) - len(
        lzma.compress(sample, preset=preset)
    )
    trained = baselines.compressed(baselines.xz_bytes, sample, sample, "trained")
    assert trained.n_heldout_bits == 8 * added
    assert trained.bits_per_byte < 0.5
    # Random bytes cannot be told in fewer bits than they have.
    assert baselines.compressed(baselines.xz_bytes, sample, b"", "alone").bits_per_byte >= 8.0


def test_sample_is_spread_and_not_larger_than_asked() -> None:
    documents = [f"{index:03}-" for index in range(100)]
    assert baselines.sampled(documents, 10_000) == "".join(documents).encode()
    assert baselines.sampled(documents, 20) == b"019-039-059-079-099-"
    assert baselines.sampled(documents, 3) == b""


def test_report_has_the_documented_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [f"def f_{i}(x):\n    return x * {i}\n" * 3 for i in range(60)]
    (tmp_path / "corpus").mkdir()
    for split, texts in (("train", documents[:50]), ("heldout", documents[50:])):
        lines = [json.dumps({"package": "p", "path": "p/a.py", "text": text}) for text in texts]
        (tmp_path / "corpus" / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "tokenizer").mkdir()
    trained = train_tokenizer(documents, 300)
    trained.save(str(tmp_path / "tokenizer" / "tokenizer.json"))
    out = tmp_path / "baselines.json"
    options = ["--data", str(tmp_path), "--json", str(out), "--every", "2"]
    monkeypatch.setattr(sys, "argv", ["baselines", *options])
    baselines.main()
    report = json.loads(out.read_text())
    names = ["gzip", "gzip_trained", "xz", "xz_trained", "byte_5gram", "token_5gram"]
    assert list(report["baselines"]) == names
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == names
    assert report["n_heldout_documents"] == 10
    n_bytes = sum(len(text.encode()) for text in documents[50:])
    assert report["n_heldout_bytes"] == n_bytes
    figures = report["baselines"]
    for figure in figures.values():
        assert figure["bits_per_byte"] * n_bytes == pytest.approx(figure["n_heldout_bits"])
    assert "one in 2" in figures["byte_5gram"]["how"]
    halves = [sum(len(text) for text in documents[:50:step]) for step in (2, 1)]
    assert [figures[f"{unit}_5gram"]["n_train_bytes"] for unit in ("byte", "token")] == halves
    # The text repeats itself: what may read training text first needs less.
    assert figures["xz_trained"]["bits_per_byte"] < figures["xz"]["bits_per_byte"]
    n_tokens = sum(len(trained.encode(text).ids) for text in documents[50:])
    assert figures["token_5gram"]["n_heldout_symbols"] == n_tokens
