"""Requests with a grammar: how they begin and end, and that others do not notice."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import cache

import pytest

from headrace.engine.core import EngineCore
from headrace.engine.grammars import store
from headrace.engine.grammars.pace import Pace
from headrace.engine.request import State
from headrace.errors import RequestError
from headrace.structured.grammar import Grammar
from headrace.structured.vocabulary import Vocabulary
from tests.engine.expected import answer
from tests.engine.mock import (
    EOS,
    NUM_TOKENS,
    Collected,
    MockModel,
    collect,
    drain,
    make_core,
    submit,
)
from tests.engine.plans import prompt, request

CHARACTERS = 'abcdefgh0123456789{}[]":,.-_ ijklmnopqrs'
"""The text of each id of the mock's vocabulary; that of EOS is no text."""
assert len(CHARACTERS) == NUM_TOKENS


@cache
def vocabulary() -> Vocabulary:
    pieces = [character.encode() for character in CHARACTERS]
    pieces[EOS] = b"<end>"
    ids = {character: index for index, character in enumerate(CHARACTERS) if index != EOS}
    return Vocabulary(pieces, [EOS], lambda text: [ids[character] for character in text])


def text_of(collected: Collected) -> str:
    return "".join(CHARACTERS[token_id] for token_id in collected.token_ids)


def core_with_text(model: MockModel | None = None, **settings: object) -> EngineCore:
    return make_core(model, vocabulary=vocabulary, **settings)


def regex(text: str) -> Grammar:
    return Grammar("regex", text)


def run(grammar: Grammar, **params: object) -> Collected:
    core = core_with_text()
    core.submit(submit("r", prompt(5), **{"ignore_eos": False, "grammar": grammar, **params}))
    return drain(core)["r"]


def test_an_answer_ends_with_its_grammar_and_without_an_end_id() -> None:
    got = run(Grammar("choice", '["abc", "bad"]'), max_tokens=9)
    assert text_of(got) in ("abc", "bad")
    assert got.finish_reason == "stop"
    assert got.outputs[-1].stop_reason is None and got.outputs[-1].ends_with_text
    assert [len(output.token_ids) for output in got.outputs] == [1, 2]


def test_an_answer_that_is_cut_says_so_and_a_complete_one_of_the_same_length_stops() -> None:
    cut = run(regex("[a-d]{4}"), max_tokens=3)
    assert (cut.finish_reason, len(cut.token_ids)) == ("length", 3)
    whole = run(regex("[a-d]{3}"), max_tokens=3)
    assert (whole.finish_reason, len(whole.token_ids)) == ("stop", 3)


def test_an_end_id_comes_only_where_the_grammar_accepts() -> None:
    for seed in range(12):
        got = run(regex("(ab)+"), max_tokens=20, temperature=1.5, seed=seed, logit_bias={EOS: 2.0})
        assert got.finish_reason == "stop" and got.token_ids[-1] == EOS
        assert not got.outputs[-1].ends_with_text
        ids = got.token_ids[:-1]
        assert "".join(CHARACTERS[token_id] for token_id in ids) == "ab" * (len(ids) // 2) != ""
    goes_on = run(regex("(ab)+"), max_tokens=21, ignore_eos=True, logit_bias={EOS: 100.0})
    assert (goes_on.finish_reason, EOS in goes_on.token_ids) == ("length", False)


def test_min_tokens_holds_where_the_grammar_can_go_on_and_gives_way_where_it_cannot() -> None:
    for seed in range(4):
        got = run(regex("a*"), max_tokens=9, min_tokens=5, seed=seed, logit_bias={EOS: 100.0})
        assert (got.finish_reason, len(got.token_ids)) == ("stop", 6)
    short = run(regex("ab"), max_tokens=9, min_tokens=5)
    assert (short.finish_reason, text_of(short)) == ("stop", "ab")


def test_a_grammar_of_the_empty_text_alone_ends_without_a_token() -> None:
    got = run(regex(""), logprobs=1, prompt_logprobs=0)
    assert (got.finish_reason, got.token_ids) == ("stop", [])
    assert got.prompt_logprobs is not None and len(got.prompt_logprobs) == 5


def test_a_stop_token_comes_only_where_the_grammar_takes_its_text() -> None:
    digit = CHARACTERS.index("1")
    got = run(regex("ab1*c"), max_tokens=9, stop_token_ids=(digit,), logit_bias={digit: 100.0})
    assert (text_of(got), got.finish_reason) == ("ab1", "stop")
    assert got.outputs[-1].stop_reason == digit and not got.outputs[-1].ends_with_text


def test_other_masks_hold_within_the_grammar_and_what_leaves_nothing_is_an_error() -> None:
    a, b = CHARACTERS.index("a"), CHARACTERS.index("b")
    assert text_of(run(regex("[ab]{3}"), bad_words_token_ids=((a,),))) == "bbb"
    assert text_of(run(regex("[abc]{3}"), allowed_token_ids=(b,))) == "bbb"
    nothing = run(regex("a{3}"), bad_words_token_ids=((a,),))
    assert nothing.finish_reason == "error"
    last = nothing.outputs[-1]
    assert str(last.error).startswith("the form of the answer, bad_words: no token is left")
    assert last.error_code == "no_token_left", "the request's own fault"
    within = run(regex("ba{3}"), allowed_token_ids=(b,)).outputs[-1]
    assert "allowed_token_ids: no token is left to come after 1 tok" in str(within.error)


def test_log_probabilities_are_those_of_the_model_without_the_grammar() -> None:
    free, _ = answer(submit("r", prompt(5), max_tokens=1, logprobs=3))
    got = run(regex("[jk]"), logprobs=3)
    (entry,) = got.outputs[0].logprobs or []
    assert entry.token_id == got.token_ids[0]
    assert entry.top[0][0] == free[0] and entry.rank > 1


def test_choices_of_one_request_differ_and_all_follow_it() -> None:
    core = core_with_text()
    for choice in range(6):
        core.submit(submit(str(choice), prompt(5), grammar=regex("[a-d0-9]{6}"), choice=choice,
                           temperature=1.5, seed=3, max_tokens=9))  # fmt: skip
    texts = {text_of(got) for got in drain(core).values()}
    assert len(texts) > 3 and all(len(text) == 6 for text in texts)


def test_a_refused_grammar_ends_alone_while_others_go_on() -> None:
    core = core_with_text()
    others = [submit(name, prompt(20, i), max_tokens=12) for i, name in enumerate("ab")]
    for submitted in others:
        core.submit(submitted)
    core.submit(submit("bad", prompt(5), grammar=regex("(a")))
    core.submit(submit("good", prompt(5), grammar=regex("ab|cd")))
    results = drain(core)
    bad = results["bad"].outputs
    assert [(out.finish_reason, out.token_ids) for out in bad] == [("error", [])]
    assert "grammar cannot be compiled" in str(bad[0].error)
    assert bad[0].error_code == "invalid_grammar"
    assert text_of(results["good"]) in ("ab", "cd")
    for submitted in others:
        assert results[submitted.request_id].token_ids == answer(submitted)[0]


def test_a_grammar_too_complex_for_a_token_ends_its_request_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = core_with_text()
    other = submit("other", prompt(20), max_tokens=12)
    core.submit(other)
    core.submit(submit("r", prompt(5), grammar=regex("[a-d]{9}"), max_tokens=9))
    results: dict[str, Collected] = {}
    while len(results.get("r", Collected()).token_ids) < 3:
        collect(results, core.step())
    constraint = request(core, "r").constraint
    assert constraint is not None
    monkeypatch.setattr(constraint.reader, "at", lambda token_ids, drafts=(): 1 / 0)
    drain(core, results)
    last = results["r"].outputs[-1]
    assert (last.finish_reason, last.token_ids) == ("error", [])
    assert last.error == "the grammar cannot be followed: ZeroDivisionError: division by zero"
    assert last.error_code is None
    assert results["other"].token_ids == answer(other)[0]


def test_a_grammar_beyond_a_limit_is_the_requests_own_fault() -> None:
    ambiguous = Grammar("lark", 'start: s "h"\ns: s s | s s s | /[a-d]/')
    last = run(ambiguous, max_tokens=90, logit_bias={CHARACTERS.index("h"): -100.0}).outputs[-1]
    assert (last.finish_reason, last.error_code) == ("error", "grammar_too_large")
    assert last.error is not None and "max is 256" in last.error


def test_a_grammar_that_failed_an_answer_is_not_kept_for_the_next() -> None:
    # How much a matcher may hold does not depend on the request alone: drafts are read as well.
    core = core_with_text(speculative_config="none")
    grammar = regex("([ab]|[a-h]{1,300}){0,20000}-")
    for name in ("first", "second"):
        core.submit(submit(name, prompt(5), grammar=grammar, max_tokens=200, temperature=1.0,
                           seed=1, logit_bias={CHARACTERS.index("-"): -100.0}))  # fmt: skip
        drained = drain(core)[name]
        assert drained.outputs[-1].error_code == "grammar_too_large", drained.outputs[-1].error
        if name == "first":
            written = drained.token_ids
    assert drained.token_ids == written and len(written) > 10


def test_a_model_without_text_refuses_a_grammar_at_once() -> None:
    core = make_core()
    with pytest.raises(RequestError, match="no tokenizer") as refused:
        core.submit(submit("r", prompt(5), grammar=regex("a")))
    assert (refused.value.param, refused.value.code) == ("grammar", "no_tokenizer")
    assert not core.has_work
    core.check()


class SlowVocabulary:
    """A vocabulary that is read when it is let."""

    def __init__(self) -> None:
        self.let = threading.Event()

    def __call__(self) -> Vocabulary:
        assert self.let.wait(30)
        return vocabulary()


def test_others_run_while_a_grammar_is_compiled_and_it_keeps_its_place() -> None:
    slow = SlowVocabulary()
    core = make_core(vocabulary=slow, max_num_seqs=1)
    results: dict[str, Collected] = {}
    core.submit(submit("first", prompt(5), max_tokens=6))
    core.submit(submit("slow", prompt(5, 1), grammar=regex("[a-d]{3}")))
    core.submit(submit("later", prompt(5, 2), max_tokens=2))
    for _ in range(3):
        collect(results, core.step())
        core.check()
    assert len(results["first"].token_ids) == 3
    assert request(core, "slow").state is State.COMPILING
    assert core.stats().num_waiting == 2
    slow.let.set()
    order: list[str] = []
    while core.has_work:
        outputs = core.step()
        collect(results, outputs)
        order += [output.request_id for output in outputs if output.finish_reason]
        for future in core._grammars._waiting.values():
            future.result(30)
    assert order == ["first", "slow", "later"]
    assert len(text_of(results["slow"])) == 3


def test_a_request_that_waits_for_its_grammar_can_be_cancelled_and_can_time_out() -> None:
    slow = SlowVocabulary()
    core = make_core(vocabulary=slow)
    core.submit(submit("gone", prompt(5), grammar=regex("a")))
    core.submit(submit("late", prompt(5), grammar=regex("b"), timeout_s=0.01))
    core.cancel("gone")
    results: dict[str, Collected] = {}
    while core.has_work:
        collect(results, core.step())
        core.check()
    assert {name: got.finish_reason for name, got in results.items()} == {
        "gone": "abort", "late": "timeout",
    }  # fmt: skip
    slow.let.set()
    core.submit(submit("r", prompt(5), grammar=regex("a")))
    assert text_of(drain(core)["r"]) == "a"


def test_compiled_grammars_are_kept_by_content_and_the_oldest_are_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[Grammar] = []
    compile_one = store.Grammars._compile

    def counted(self: store.Grammars, grammar: Grammar, pace: Pace) -> object:
        compiled.append(grammar)
        return compile_one(self, grammar, pace)

    monkeypatch.setattr(store.Grammars, "_compile", counted)
    monkeypatch.setattr(store, "MAX_KEPT", 2)
    core = core_with_text()
    for number, text in enumerate(["a", "a", "b", "a", "c", "a", "b"]):
        core.submit(submit(str(number), prompt(5), grammar=regex(text)))
        assert text_of(drain(core)[str(number)]) == text
    assert [grammar.text for grammar in compiled] == ["a", "b", "c", "b"]
    monkeypatch.setattr(store, "MAX_KEPT_BYTES", 3)
    core.submit(submit("long", prompt(5), grammar=regex("abcabc")))
    drain(core)
    assert [grammar.text for grammar in core._grammars._kept] == ["abcabc"]


def test_a_grammar_is_as_large_as_its_limit_at_most() -> None:
    with pytest.raises(RequestError, match="at most 524288") as refused:
        core_with_text().submit(submit("r", prompt(5), grammar=regex("a" * (1 << 19) + "b")))
    assert refused.value.code == "grammar_too_large"


@pytest.mark.process
def test_an_engine_without_grammars_imports_nothing_for_them() -> None:
    code = (
        "import sys; from tests.engine.mock import *; core = make_core(vocabulary=lambda: 1 / 0);"
        "core.submit(submit('r', [1, 2, 3])); assert drain(core)['r'].finish_reason == 'length';"
        "print('llguidance' in sys.modules, core._runner._masks._executor)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["False", "None"], done.stderr


def test_a_grammar_that_is_full_is_compiled_again_for_the_next_request() -> None:
    core = core_with_text()
    grammar = regex("[a-d]{3}")
    core.submit(submit("first", prompt(5), grammar=grammar))
    drain(core)
    (kept,) = core._grammars._kept.values()
    kept.result().anew()
    core.submit(submit("second", prompt(5), grammar=grammar))
    assert len(drain(core)["second"].token_ids) == 3
    (again,) = core._grammars._kept.values()
    assert kept.result().is_full and not again.result().is_full
