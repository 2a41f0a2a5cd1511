"""Acceptance by place: of shares, of a server's metrics, and of a draft's card."""

from __future__ import annotations

import json
from itertools import accumulate
from operator import mul
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ConfigError
from headrace.plan.speed.measured_acceptance import MeasuredAcceptance, read_acceptance
from headrace.plan.speed.speculation import expected_tokens_per_pass

CARD = Path(__file__).parents[2] / "models" / "headrace-draft" / "CARD.md"
METRICS = """\
# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 150.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 50.0
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 120.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 80.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="0"} 40.0
"""


def test_metrics_give_the_share_of_each_place_given_those_before_it(tmp_path: Path) -> None:
    path = tmp_path / "metrics.txt"
    path.write_text(METRICS, "utf-8")
    found = read_acceptance("--acceptance", str(path))
    assert found == MeasuredAcceptance((160 / 200, 80 / 160), str(path))


def test_the_card_of_the_shipped_draft_gives_what_its_table_has() -> None:
    found = read_acceptance("--acceptance", str(CARD))
    assert found.shares[0] == pytest.approx(0.82)
    # 2.48 of 4 drafts are accepted, so that a pass gives 3.48 tokens.
    assert 1 + sum(accumulate(found.shares[:4], mul)) == pytest.approx(3.48)
    same = found.same_for_all(4)
    assert expected_tokens_per_pass(same, 4) == pytest.approx(3.48)
    assert len(found.shares) == 8


@given(st.lists(st.floats(0.01, 0.99), min_size=1, max_size=6), st.integers(1, 16))
def test_one_acceptance_for_all_places_gives_as_many_tokens(shares: list[float], most: int) -> None:
    found = MeasuredAcceptance(tuple(shares), "--acceptance")
    known = (*shares, *[shares[-1]] * most)[:most]
    tokens = 1 + sum(accumulate(known, mul))
    assert expected_tokens_per_pass(found.same_for_all(most), most) == pytest.approx(tokens)


def test_shares_are_read_as_they_are() -> None:
    assert read_acceptance("--acceptance", "0.8,0.5") == ((0.8, 0.5), "--acceptance")
    assert read_acceptance("--acceptance", "0.7").same_for_all(4) == pytest.approx(0.7)


@pytest.mark.parametrize("text", ["1.2", "0.5,-1", "much", "0.5,"])
def test_what_is_no_acceptance_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--acceptance"):
        read_acceptance("--acceptance", text)


@pytest.mark.parametrize(
    "text", ["nothing of it", METRICS.replace("150.0", "0").replace("} 50.0", "} 0"), '{"a": 1}']
)
def test_a_file_without_acceptance_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file"
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigError, match="has no acceptance"):
        read_acceptance("--acceptance", str(path))


def grown(rows: float) -> str:
    return METRICS.replace("150.0", str(rows)).replace("120.0", str(rows - 30))


def test_a_run_gives_what_grew_while_it_was_read(tmp_path: Path) -> None:
    result = {"format": 1, "about": {}, "summary": {"definition": "headrace"}}
    (tmp_path / "result.json").write_text(json.dumps({"headrace": result}), "utf-8")
    (tmp_path / "requests.jsonl").write_text("", "utf-8")
    lines = [json.dumps([at, grown(rows)]) + "\n" for at, rows in ((0, 150.0), (10**9, 250.0))]
    (tmp_path / "metrics.jsonl").write_text("".join(lines), "utf-8")
    for name in (tmp_path, tmp_path / "result.json"):
        # 100 rows more, all of whose first drafts were accepted and none of the second.
        assert read_acceptance("--acceptance", str(name)).shares == (1.0, 0.0)


def test_what_bench_load_prints_is_read(tmp_path: Path) -> None:
    path = tmp_path / "printed.json"
    drafts = {"rows": 10.0, "drafted": 20.0, "accepted": 9.0, "accepted_by_place": [6.0, 3.0]}
    path.write_text(json.dumps({"about": {}, "summary": {"server": {"drafts": drafts}}}), "utf-8")
    assert read_acceptance("--acceptance", str(path)).shares == (0.6, 0.5)
    path.write_text(json.dumps({"about": {}, "summary": {"server": None}}), "utf-8")
    with pytest.raises(ConfigError, match="has no acceptance"):
        read_acceptance("--acceptance", str(path))


def test_a_server_is_asked_by_its_address() -> None:
    asked = []

    def fetch(url: str) -> str:
        asked.append(url)
        return METRICS

    found = read_acceptance("--acceptance", "http://127.0.0.1:8000", fetch)
    assert found.shares == (160 / 200, 80 / 160) and asked == ["http://127.0.0.1:8000"]
    with pytest.raises(ConfigError, match="has no drafts"):
        read_acceptance("--acceptance", "http://127.0.0.1:8000", lambda _: "")
