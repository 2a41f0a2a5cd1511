"""What ships: every fact is read, every reference leads somewhere, and numbers agree."""

from __future__ import annotations

import datetime as dt
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from headrace.catalog import Catalog, Confidence
from headrace.catalog.catalog import DATA
from headrace.catalog.rows import KINDS, Row
from headrace.catalog.rows.model import Model
from headrace.catalog.schema import fields_of
from headrace.catalog.span import Span

# Fields that name rows, and the kinds those are of.
REFERENCES = {
    "hardware": {"made_of": "hardware"},
    "quantization": {"runtimes": "runtime", "native_on": "hardware", "mix_of": "quantization"},
    "provider": {"models": "model", "hardware": "hardware"},
    "price": {"provider": "provider", "model": "model"},
    "technique": {"runtimes": "runtime"},
    "measurement": {
        "model": "model", "hardware": "hardware", "runtime": "runtime", "provider": "provider",
        "quantization": "quantization",
    },
}  # fmt: skip
TODAY = dt.date(2026, 12, 1)


@pytest.fixture(scope="module")
def known() -> Catalog:
    return Catalog.load()


def every(known: Catalog) -> list[tuple[str, Row]]:
    return [(kind, row) for kind in KINDS for row in known.table(kind)]


def test_every_fact_is_there_with_all_it_needs(known: Catalog) -> None:
    count = 0
    for kind, row in every(known):
        assert row.facts, row.id
        for path, fact in row.facts.items():
            count += 1
            name, _, key = path.partition(".")
            value: Any = getattr(row, name)
            assert (value[key] if key else value) == fact.value, f"{kind} {row.id} {path}"
            assert fact.source in known.sources
            assert isinstance(fact.confidence, Confidence)
            assert dt.date(2019, 1, 1) <= fact.as_of <= TODAY, f"{row.id} {path} {fact.as_of}"
            assert set(fact.disputed_by) <= set(known.contradictions)
    assert count > 3500
    assert {kind: len(known.table(kind)) for kind in KINDS}.items() >= {
        "model": 90, "hardware": 51, "quantization": 61, "runtime": 22, "provider": 123,
        "price": 56, "technique": 64, "measurement": 35, "constant": 155,
        "decision": 11, "rule": 38,
    }.items()  # fmt: skip


def test_the_wheel_has_the_data() -> None:
    """All that is in the package is packed, but for what is left out by name or ignored by git."""
    root = Path(__file__).resolve().parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    build = project["tool"]["scikit-build"]
    assert build["wheel"]["packages"] == ["src/headrace"] and "exclude" not in build["wheel"]
    assert not any("catalog" in one or "toml" in one for one in build["sdist"]["exclude"])
    ignored = (root / ".gitignore").read_text(encoding="utf-8")
    assert "data" not in ignored and "toml" not in ignored
    assert {path.parent.name for path in DATA.glob("*/*.toml")} == set(KINDS)


def test_names_are_unique_over_all_kinds(known: Catalog) -> None:
    for kind, row in every(known):
        for name in (row.id, row.name, *row.aliases):
            assert known.find(name) == (kind, row)


def test_every_source_is_used(known: Catalog) -> None:
    facts = {fact.source for _, row in every(known) for fact in row.facts.values()}
    said = {s.source for one in known.contradictions.values() for s in one.statements}
    assert set(known.sources) == facts | said


def test_references_lead_to_rows(known: Catalog) -> None:
    for kind, fields in REFERENCES.items():
        for row in known.table(kind):
            for field, other in fields.items():
                value = getattr(row, field)
                names = value if isinstance(value, tuple) else (value,)
                for name in names:
                    if name is not None:
                        assert known.table(other).find(name), f"{kind} {row.id} {field}: {name}"


def test_every_field_is_used_by_some_row(known: Catalog) -> None:
    """A field that nothing fills is a word that means nothing yet."""
    of_others = {
        "tpot_s",  # of measurements people add
        "reasoning_usd_per_million_tokens", "input_audio_usd_per_million_tokens",
        "output_audio_usd_per_million_tokens", "cache_write_5m_usd_per_million_tokens_above",
        "cache_write_1h_usd_per_million_tokens_above",
    }  # fmt: skip
    for kind in KINDS:
        used = {path.partition(".")[0] for row in known.table(kind) for path in row.facts}
        assert set(fields_of(kind)) - used <= of_others, kind


def test_the_register_is_whole(known: Catalog) -> None:
    assert list(known.contradictions) == [f"C{number:02}" for number in range(1, 73)]
    for one in known.contradictions.values():
        assert one.subject and one.used and one.why, one.id
        assert one.statements and all(statement.says for statement in one.statements), one.id
        assert known.disputed_rows(one.id), f"{one.id} is in no row"


def test_no_text_has_what_the_page_would_break_on(known: Catalog) -> None:
    for _, row in every(known):
        for fact in row.facts.values():
            for text in (fact.note, fact.value if isinstance(fact.value, str) else ""):
                assert text == text.strip() and not re.search(r"[\n\t]|S[0-4]:", text)


@pytest.mark.parametrize(
    ("model", "bytes_per_token"),
    [
        ("llama-2-7b", 524_288),
        ("llama-2-13b", 819_200),
        ("llama-1-65b", 2_621_440),
        ("llama-2-70b", 327_680),
        ("llama-3.1-70b", 327_680),
        ("llama-3.1-8b", 131_072),
        ("mistral-7b", 131_072),
        ("qwen3-32b", 262_144),
        ("qwen3-30b-a3b", 98_304),
        ("qwen3-235b-a22b", 192_512),
        ("llama-4-maverick", 196_608),
        ("mixtral-8x22b", 229_376),
        ("deepseek-v3", 70_272),
        ("kimi-k2", 70_272),
        ("gpt-oss-120b", 73_728),
    ],
)
def test_shapes_give_the_kv_bytes_that_are_known(
    known: Catalog, model: str, bytes_per_token: int
) -> None:
    row = known.models[model]
    layers = row.num_layers or 0
    if row.attention == "mla":
        assert row.kv_lora_rank and row.qk_rope_head_dim
        values = row.kv_lora_rank + row.qk_rope_head_dim
    else:
        assert row.num_kv_heads and row.head_dim
        values = 2 * row.num_kv_heads * row.head_dim
    assert 2 * layers * values == bytes_per_token


def _attention(row: Model) -> int:
    d, heads = row.hidden_size or 0, row.num_attention_heads or 0
    if row.attention != "mla":
        width = row.head_dim or 0
        total = 2 * d * heads * width + 2 * d * (row.num_kv_heads or 0) * width
        norms = {"qwen3": 2, "qwen3_moe": 2, "minimax_m2": heads + (row.num_kv_heads or 0)}
        biases = {"qwen2", "qwen2_5_vl", "glm4"}
        if row.architecture in biases:
            total += (heads + 2 * (row.num_kv_heads or 0)) * width
        return total + norms.get(row.architecture or "", 0) * width
    rope, nope = row.qk_rope_head_dim or 0, row.qk_nope_head_dim or 0
    value, kv, q = row.value_head_dim or 0, row.kv_lora_rank or 0, row.q_lora_rank or 0
    return (
        d * q + q + q * heads * (nope + rope)
        + d * (kv + rope) + kv + kv * heads * (nope + value) + heads * value * d
    )  # fmt: skip


def _counted(row: Model, experts: int) -> int:
    """Parameters with `experts` of the routed ones; the sum over the shapes of the row."""
    d, layers = row.hidden_size or 0, row.num_layers or 0
    dense = layers - (row.expert_layers or 0)
    tables = (row.vocabulary_tokens or 0) * d * (1 if row.tied_embeddings else 2)
    total = tables + d + layers * (_attention(row) + 2 * d)
    total += dense * 3 * d * (row.intermediate_size or 0)
    if row.num_experts:
        width = row.moe_intermediate_size or 0
        # What the router adds to a score before it chooses, in models that have it.
        bias = row.num_experts if row.attention == "mla" or row.family == "MiniMax M2" else 0
        each = (experts + (row.shared_experts or 0)) * 3 * d * width + row.num_experts * d + bias
        total += (row.expert_layers or 0) * each
    return total


def test_counted_parameters_are_those_of_the_shapes(known: Catalog) -> None:
    checked = 0
    for row in known.models:
        total = row.facts.get("total_parameters")
        if total is None or total.source != "counted" or row.architecture == "gpt_oss":
            continue
        checked += 1
        assert row.total_parameters == _counted(row, row.num_experts or 0), row.id
        assert row.active_parameters == _counted(row, row.experts_per_token or 0), row.id
    assert checked > 30


def test_layers_of_hybrids_add_up(known: Catalog) -> None:
    for row in known.models:
        kinds = (
            row.full_attention_layers, row.sliding_layers, row.linear_attention_layers,
            row.state_space_layers,
        )  # fmt: skip
        if sum(count is not None for count in kinds) > 1 and row.family not in (
            "Nemotron 3",  # blocks of experts and of feed-forward networks count as layers there
            "Nemotron-H",
        ):
            assert sum(count or 0 for count in kinds) == row.num_layers, row.id


def test_active_is_no_more_than_total(known: Catalog) -> None:
    for row in known.models:
        if row.total_parameters and row.active_parameters:
            assert row.active_parameters <= row.total_parameters, row.id
            # Of Mistral Large 3 only the sums are published.
            sparse = row.num_experts is not None or row.id == "mistral-large-3"
            assert sparse or row.active_parameters == row.total_parameters, row.id


def test_peaks_double_as_types_halve(known: Catalog) -> None:
    for row in known.hardware:
        if row.dense_bf16_flops and row.dense_fp8_flops:
            assert 1.9 < row.dense_fp8_flops / row.dense_bf16_flops < 2.1, row.id
        if row.dense_fp8_flops and row.dense_fp4_flops:
            assert 1.9 < row.dense_fp4_flops / row.dense_fp8_flops < 4.1, row.id
        if row.usable_memory_bytes and row.memory_bytes and row.id != "gb300":
            assert row.usable_memory_bytes <= row.memory_bytes * 1.04, row.id


def test_ridges_that_are_known(known: Catalog) -> None:
    def ridge(name: str) -> float:
        row = known.hardware[name]
        assert row.dense_bf16_flops and row.bandwidth_bytes_per_s
        return row.dense_bf16_flops / row.bandwidth_bytes_per_s

    assert round(ridge("H100")) == 295
    assert round(ridge("A100")) == 153
    assert round(ridge("RTX-4090")) == 164
    assert round(ridge("b200")) == 292


def test_claims_are_never_surer_than_they_are(known: Catalog) -> None:
    """The documents are secondary; none of what they say alone is taken for exact."""
    documents = {"quick-reference", "quantization-guide", "compute-reference", "speed-article"}
    derivable = {
        "decode-intensity", "ridge-h100", "kv-llama-2-70b-4k", "single-stream-utilization",
        "grouped-query-attention",
    }  # fmt: skip
    for _, row in every(known):
        for path, fact in row.facts.items():
            if fact.source in documents and row.id not in derivable:
                assert fact.confidence != Confidence.EXACT, f"{row.id} {path}"


def test_spans_and_text_are_typed(known: Catalog) -> None:
    h100 = known.hardware["h100"]
    assert h100.price_usd_per_hour["runpod"] == Span(2.69, 2.69)
    assert h100.fact("price_usd_per_hour.runpod").unit == "USD/h"
    assert h100.fact("link_bytes_per_s").value == 450e9
    assert "C37" in h100.disputed_by
