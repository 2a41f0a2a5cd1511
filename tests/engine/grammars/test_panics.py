"""Whatever llguidance raises ends the request whose grammar it was, and no other.

A panic of its Rust code arrives as an exception that is not an `Exception`: whatever lets it
through ends the engine.
"""

from __future__ import annotations

from typing import Any

import llguidance
import pytest

from headrace.engine.grammars import beside
from headrace.engine.grammars.pace import Pace
from headrace.errors import RequestError
from headrace.structured.compile import CompiledGrammar, compile_grammar
from headrace.structured.grammar import Grammar
from headrace.structured.validity import validate
from tests.engine.grammars.test_grammars import core_with_text, regex, run
from tests.engine.mock import Collected, drain, submit
from tests.engine.plans import prompt


class PanicError(BaseException):
    """As pyo3's, which cannot be imported."""


class Panicking:
    """A matcher whose method panics from its nth call on, with all its copies."""

    def __init__(self, matcher: Any, method: str, calls: list[int]) -> None:
        self._matcher, self._method, self._calls = matcher, method, calls

    def __getattr__(self, name: str) -> Any:
        if name == self._method:
            self._calls[0] -= 1
            if self._calls[0] < 0:
                raise PanicError(f"at {name}")
        return getattr(self._matcher, name)

    def deep_copy(self) -> Any:
        copied = self.__getattr__("deep_copy")()
        return Panicking(copied, self._method, self._calls)


BAD, GOOD = regex("[a-h]{3}0123[0-9]{9}"), regex("[a-h]{12}")


def answers(monkeypatch: pytest.MonkeyPatch, method: str, calls: int, **settings: object) -> Any:
    """Both requests' answers, of which one has a grammar that panics."""

    def compiled(grammar: Grammar, *rest: Any) -> CompiledGrammar:
        made = compile_grammar(grammar, *rest)
        if grammar == BAD:
            made._matcher = Panicking(made._matcher, method, [calls])  # type: ignore[assignment]
        return made

    monkeypatch.setattr("headrace.structured.compile.compile_grammar", compiled)
    core = core_with_text(**settings)
    for name, grammar in (("bad", BAD), ("good", GOOD)):
        core.submit(submit(name, prompt(5), grammar=grammar, ignore_eos=False, max_tokens=40))
    return drain(core)


def check(got: dict[str, Collected]) -> None:
    expected = run(GOOD, max_tokens=40)
    assert got["good"].token_ids == expected.token_ids
    assert got["good"].finish_reason == "stop"
    last = got["bad"].outputs[-1]
    assert last.error is not None and "PanicError: at " in last.error
    assert last.error_code is None, "it is no fault of the client's"


@pytest.mark.parametrize("calls", [0, 2])
@pytest.mark.parametrize(
    "method",
    ["unsafe_compute_mask_ptr", "consume_token", "is_accepting", "is_stopped", "is_error",
     "compute_ff_tokens"],
)  # fmt: skip
def test_a_panic_at_any_question_ends_its_request_alone(
    monkeypatch: pytest.MonkeyPatch, method: str, calls: int
) -> None:
    check(answers(monkeypatch, method, calls))


@pytest.mark.parametrize("method", ["deep_copy", "unsafe_compute_mask_ptr"])
def test_a_panic_beside_the_steps_ends_its_request_alone(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(Pace, "compiled", lambda self, _: setattr(self, "is_slow", True))
    check(answers(monkeypatch, method, 0))


def test_a_thread_beside_the_steps_that_cannot_begin_fails_what_it_was_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Pace, "compiled", lambda self, _: setattr(self, "is_slow", True))

    def panics() -> None:
        raise PanicError("at the executor")

    monkeypatch.setattr(beside, "Reader", panics)
    last = run(GOOD, max_tokens=40).outputs[-1]
    assert last.error is not None and "PanicError: at the executor" in last.error


@pytest.mark.parametrize(
    ("grammar", "name"),
    [
        (regex("[a-h]{3}"), "grammar_from_regex"),
        (Grammar("json_schema", "{}"), "grammar_from_json_schema"),
        (Grammar("lark", 'start: "a"'), "grammar_from_lark"),
    ],
)
def test_a_panic_while_a_grammar_is_compiled_is_its_requests_error(
    monkeypatch: pytest.MonkeyPatch, grammar: Grammar, name: str
) -> None:
    def panics(*_: Any, **__: Any) -> Any:
        raise PanicError("at compiling")

    monkeypatch.setattr(llguidance.LLMatcher, name, panics)
    with pytest.raises(RequestError, match="PanicError: at compiling"):
        validate(grammar, param="grammar")
    core = core_with_text()
    core.submit(submit("bad", prompt(5), grammar=grammar))
    core.submit(submit("free", prompt(5), max_tokens=20))
    got = drain(core)
    assert "PanicError: at compiling" in (got["bad"].outputs[-1].error or "")
    assert len(got["free"].token_ids) == 20


def test_a_panic_while_the_vocabulary_is_read_ends_its_request_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def panics(*_: Any) -> Any:
        raise PanicError("at the vocabulary")

    monkeypatch.setattr("headrace.structured.compile.GrammarTokenizer.__init__", panics)
    core = core_with_text()
    core.submit(submit("bad", prompt(5), grammar=GOOD))
    core.submit(submit("free", prompt(5), max_tokens=20))
    got = drain(core)
    assert "PanicError in the engine: at the vocabulary" in (got["bad"].outputs[-1].error or "")
    assert len(got["free"].token_ids) == 20
