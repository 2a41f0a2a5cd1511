"""Findings of logged requests, with what they cost."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from headrace.catalog import Catalog
from headrace.errors import ConfigError
from headrace.gateway.prompt_cache.bodies import prompts_of_file, prompts_of_log
from headrace.gateway.prompt_cache.known import known_of
from headrace.gateway.prompt_cache.lint import Finding, Known, findings_of
from headrace.gateway.prompt_cache.prompt import Prompt, prompt_of
from headrace.gateway.request_log.filters import Page, RecordFilter
from headrace.gateway.request_log.record import LoggedBody, LogRecord
from headrace.gateway.targets.target import Price
from tests.gateway.harness import gateway

RULES = "Answer every question of a customer in one sentence and name your source. " * 80
PRICE = Price(input=3_000_000_000, output=0, cache_read=300_000_000, cache_write=3_750_000_000)
AUTOMATIC = Known(PRICE, 1024)
MARKED = Known(PRICE, 1024, needs_marks=True)
MARK = {"cache_control": {"type": "ephemeral"}}


def prompts(*bodies: dict[str, Any]) -> list[tuple[Prompt, str]]:
    found = [prompt_of({"model": "m", **one}) for one in bodies]
    return [(one, "") for one in found if one is not None]


def chat(system: Any, turn: str = "Hi", **more: Any) -> dict[str, Any]:
    return {"system": system, "messages": [{"role": "user", "content": turn}], **more}


def lint(known: Known, *bodies: dict[str, Any]) -> list[Finding]:
    return findings_of(prompts(*bodies), lambda model: known)


def test_a_time_at_the_beginning_is_found_with_its_price() -> None:
    bodies = [chat(f"It is 15:0{at}. {RULES}", f"Question {at}") for at in range(5)]
    (found,) = lint(AUTOMATIC, *bodies)
    assert (found.kind, found.moving, found.requests) == ("moving-prefix", "time", 5)
    # 6,000 characters are about 1,500 tokens, each 2.7 dollars a million dearer than read again.
    assert found.tokens == pytest.approx(len(RULES) / 4, abs=3)
    assert found.usd_per_1000_requests == pytest.approx(found.tokens * 2.7e-6 * 1000)
    assert "to the end" in found.advice and found.application.startswith("It is 15:00. Answer")


def test_what_is_too_short_to_be_kept_or_already_at_the_end_is_no_finding() -> None:
    assert lint(AUTOMATIC, *(chat(f"It is 15:0{at}. {RULES[:2000]}") for at in range(3))) == []
    assert lint(AUTOMATIC, *(chat(f"{RULES} It is 15:0{at}") for at in range(3))) == []
    assert lint(AUTOMATIC, *(chat(RULES, f"Question {at}") for at in range(3))) == []


def test_a_time_at_the_end_costs_the_conversation_behind_it() -> None:
    turn = {"role": "user", "content": "x" * 8000}
    bodies = [
        {"system": f"You help. It is 15:0{at}", "messages": [turn] * (at + 1)} for at in range(3)
    ]
    (found,) = lint(AUTOMATIC, *bodies)
    assert (found.moving, found.tokens) == ("time", 2000)


def test_applications_models_and_keys_are_told_apart() -> None:
    other = "Translate what you are given into Norwegian, word by word, without comments. " * 80
    bodies = [chat(f"It is 15:0{at}. {text}") for at in range(3) for text in (RULES, other)]
    bodies.append({**chat(f"It is 15:09. {RULES}"), "model": "n"})
    found = lint(AUTOMATIC, *bodies)
    assert sorted(one.requests for one in found) == [3, 3]
    each = [
        (one, key) for key in "kl" for one, _ in prompts(chat(f"It is 15:0{key == 'k':d}. {RULES}"))
    ]
    assert findings_of(each, lambda model: AUTOMATIC) == []


def test_a_long_prefix_without_a_breakpoint() -> None:
    (found,) = lint(MARKED, chat(RULES, "a"), chat(RULES, "b"))
    assert (found.kind, found.path) == ("no-breakpoint", "system")
    assert found.usd_per_1000_requests == pytest.approx(found.tokens * 2.7e-3)
    assert lint(MARKED, chat(RULES[:1000], "a"), chat(RULES[:1000], "b")) == []
    assert lint(MARKED, chat(RULES, "a")) == [], "asked once"
    moves = [chat(f"It is 15:0{at}. {RULES}") for at in range(2)]
    assert [one.kind for one in lint(MARKED, *moves)] == ["moving-prefix"]
    whole = chat(RULES, "a", cache_control={"type": "ephemeral"})
    assert lint(MARKED, whole, whole) == []
    marked = chat([{"type": "text", "text": RULES, **MARK}], "a")
    assert lint(MARKED, marked, marked) == []


def test_more_breakpoints_than_a_request_may_have() -> None:
    blocks = [{"type": "text", "text": RULES, **MARK} for _ in range(5)]
    (found,) = lint(MARKED, chat(blocks))
    assert found.kind == "too-many-breakpoints" and "5 breakpoints" in found.told
    assert lint(MARKED, chat(blocks[:4])) == []


def test_a_breakpoint_behind_what_moves() -> None:
    def body(at: int) -> dict[str, Any]:
        return chat([{"type": "text", "text": f"It is 15:0{at}. {RULES}", **MARK}])

    found = {one.kind: one for one in lint(MARKED, body(1), body(2))}
    assert set(found) == {"moving-prefix", "breakpoint-behind-moving"}
    behind = found["breakpoint-behind-moving"]
    # Written each time at 3.75 in place of read at 0.3.
    assert behind.usd_per_1000_requests == pytest.approx(behind.tokens * 3.45e-3)
    good = [
        chat([{"type": "text", "text": RULES, **MARK}, {"type": "text", "text": f"15:0{at}"}])
        for at in range(2)
    ]
    assert lint(MARKED, *good) == []


def test_a_breakpoint_that_does_nothing_and_a_prefix_just_too_short() -> None:
    short = chat([{"type": "text", "text": RULES[:1000], **MARK}])
    (found,) = lint(MARKED, short)
    assert found.kind == "below-minimum" and "1,024" in found.told
    (found,) = lint(AUTOMATIC, chat(RULES[:3000], "a"), chat(RULES[:3000], "b"))
    assert (found.kind, found.tokens) == ("below-minimum", 750)
    assert lint(AUTOMATIC, chat(RULES[:400], "a"), chat(RULES[:400], "b")) == []


def test_without_a_price_the_cost_is_unknown() -> None:
    bodies = [chat(f"It is 15:0{at}. {RULES}") for at in range(2)]
    (found,) = lint(Known(), *bodies)
    assert found.usd_per_1000_requests is None


def test_what_is_known_of_models() -> None:
    catalog, on = Catalog.load(()), dt.date(2026, 11, 22)

    def of(model: str) -> tuple[int | None, bool]:
        known = known_of(model, catalog, None, on)
        assert (known.price is None) == (model == "nobody/x")
        return known.minimum_tokens, known.needs_marks

    assert of("gpt-5") == of("openai/gpt-5-mini") == (1024, False)
    assert of("claude-sonnet-4-6") == (1024, True)
    assert of("anthropic/claude-haiku-4-5") == (4096, True)
    assert of("gemini-2.5-pro") == (1024, False)
    assert of("nobody/x") == (None, False)
    config = {
        "providers": {"anthropic": {"api_key": ["k"]}},
        "models": {"chat": {"targets": [{"model": "anthropic/claude-haiku-4-5"}]}},
    }
    router = gateway(config, []).router
    known = known_of("chat", catalog, router, on)
    assert (known.minimum_tokens, known.needs_marks) == (4096, True)
    assert known.price is not None and known.price.input == 10**9


def test_files_are_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    lines = [json.dumps({"model": "m", **chat("S")}), "", json.dumps({"input": "x"}), "[1]"]
    path.write_text("\n".join(lines), encoding="utf-8")
    assert len(list(prompts_of_file(path, 10))) == 2
    assert len(list(prompts_of_file(path, 1))) == 1
    path.write_text(lines[0] + "\n{", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"requests\.jsonl:2: not JSON"):
        list(prompts_of_file(path, 10))
    with pytest.raises(ConfigError, match="--file"):
        list(prompts_of_file(tmp_path / "none", 10))


class Log:
    """A request log of so many records, read by pages."""

    def __init__(self, records: list[LogRecord]) -> None:
        self.records = records

    def take(self, line: Any) -> None:
        raise AssertionError

    async def find(self, request_id: str) -> LogRecord | None:
        raise AssertionError

    async def newest(self, wanted: RecordFilter) -> Page:
        assert wanted.bodies
        begin = 0 if wanted.after is None else int(wanted.after)
        end = begin + wanted.limit
        following = str(end) if end < len(self.records) else None
        return Page(self.records[begin:end], following)


async def test_the_request_log_is_read_by_pages() -> None:
    text = json.dumps({"model": "m", **chat("S")})

    def record(at: int) -> LogRecord:
        body = LoggedBody(text=text if at != 3 else text[:9], bytes=len(text), cut=at == 3)
        return LogRecord(
            line=str(at), id=str(at), at_s=0.0, dialect="anthropic", path="/v1/messages",
            model="m", target=None, provider=None, outcome="answered", status=200, stream=False,
            total_ms=1.0, key="k", request=None if at == 4 else body,
        )  # fmt: skip

    log = Log([record(at) for at in range(250)])
    found = await prompts_of_log(log, 1000)
    assert len(found) == 248 and found[0][1] == "k"
    assert len(await prompts_of_log(log, 150)) == 148
