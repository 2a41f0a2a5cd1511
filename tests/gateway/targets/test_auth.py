"""Keys in turn, and how long one rests that was refused."""

from __future__ import annotations

import asyncio
import copy
import pickle

import pytest

from headrace.gateway.settings.secret import Secret
from headrace.gateway.targets.auth import (
    Credential,
    InTurn,
    KeyHeader,
    NoAuth,
    Outgoing,
    RefusedKey,
)
from headrace.protocol.neutral.failure import Failure, FailureKind

OUTGOING = Outgoing("POST", "a.b", "/v1", (), b"")


def keys(*names: str) -> tuple[InTurn, tuple[KeyHeader, ...]]:
    credentials = tuple(
        KeyHeader(Secret(name, "a test"), "authorization", "Bearer ") for name in names
    )
    return InTurn(credentials), credentials


def failure(kind: FailureKind, retry_after_s: float | None = None) -> Failure:
    return Failure(kind=kind, message="no", retry_after_s=retry_after_s)


def picked(auth: InTurn, now_s: float, times: int) -> list[Credential | None]:
    return [auth.pick(now_s) for _ in range(times)]


def test_each_is_used_as_often_as_the_others() -> None:
    auth, (a, b, c) = keys("a", "b", "c")
    assert picked(auth, 0.0, 7) == [a, b, c, a, b, c, a]
    assert auth.rests_s(0.0) == 0.0


def test_a_key_in_its_header() -> None:
    _, (a,) = keys("k")
    assert asyncio.run(a.headers(OUTGOING)) == (("authorization", "Bearer k"),)
    plain = KeyHeader(Secret("k", "a test"), "x-api-key")
    assert asyncio.run(plain.headers(OUTGOING)) == (("x-api-key", "k"),)


@pytest.mark.parametrize(
    ("said", "rest_s"),
    [
        (failure("authentication"), 10.0),
        (failure("payment"), 300.0),
        (failure("permission"), 10.0),
        (failure("rate_limit"), 5.0),
        (failure("rate_limit", 2.5), 2.5),
        (failure("rate_limit", 0.0), 0.0),
        (failure("rate_limit", 1e9), 3600.0),
    ],
)
def test_how_long_a_key_rests(said: Failure, rest_s: float) -> None:
    auth, (only,) = keys("only")
    assert auth.failed(only, said, 100.0) is False, "there is no other"
    assert auth.rests_s(100.0) == pytest.approx(rest_s)
    if rest_s:
        assert auth.pick(100.0 + 0.99 * rest_s) is None
    assert auth.pick(100.0 + rest_s) is only
    assert auth.rests_s(100.0 + rest_s) == 0.0


@pytest.mark.parametrize(
    "kind",
    ["bad_request", "too_large", "account_limit", "context_length", "content_policy", "not_found",
     "overloaded", "timeout", "server", "network", "damaged"],
)  # fmt: skip
def test_what_is_no_keys_fault(kind: FailureKind) -> None:
    auth, (a, b) = keys("a", "b")
    assert auth.failed(a, failure(kind, 60.0), 0.0) is False
    assert picked(auth, 0.0, 2) == [a, b]


def test_another_one_is_used_while_one_rests() -> None:
    auth, (a, b) = keys("a", "b")
    assert auth.pick(0.0) is a
    assert auth.failed(a, failure("rate_limit", 5.0), 0.0) is True
    assert picked(auth, 4.9, 3) == [b, b, b]
    assert auth.rests_s(4.9) == 0.0
    assert set(picked(auth, 5.0, 2)) == {a, b}


def test_when_all_rest_the_first_to_wake_counts() -> None:
    auth, (a, b) = keys("a", "b")
    assert auth.failed(a, failure("authentication"), 0.0) is True
    assert auth.failed(b, failure("rate_limit", 7.0), 0.0) is False
    assert auth.pick(1.0) is None and auth.others(a, 1.0) == 0 and auth.others(a, 7.0) == 1
    assert auth.rests_s(1.0) == pytest.approx(6.0)
    assert auth.pick(7.0) is b


@pytest.mark.parametrize("kind", ["rate_limit", "permission", "authentication"])
def test_what_is_of_one_model_leaves_the_key_to_others(kind: FailureKind) -> None:
    auth, (a, b) = keys("a", "b")
    assert auth.failed(a, failure(kind), 0.0, "lim") is True
    assert [auth.pick(1.0, "lim") for _ in range(3)] == [b, b, b]
    assert {auth.pick(1.0, "good") for _ in range(2)} == {a, b}
    assert auth.failed(b, failure(kind), 1.0, "lim") is False
    assert auth.pick(2.0, "lim") is None and auth.rests_s(2.0, "lim") > 0
    assert auth.why(2.0, "lim") == failure(kind)
    assert auth.rests_s(2.0, "good") == auth.rests_s(2.0) == 0.0
    assert auth.why(2.0, "good") is None and auth.others(a, 2.0, "good") == 1
    assert auth.count(2.0) == (2, 2 if kind == "authentication" else 0)


def test_a_wrong_key_is_asked_less_and_less_often_and_told_of_once() -> None:
    auth, (only,) = keys("only")
    heard: list[RefusedKey] = []
    auth.tell("p", heard.append)
    said, now_s, rests = failure("authentication"), 0.0, []
    for _ in range(7):
        auth.failed(only, said, now_s, "m")
        auth.failed(only, said, now_s + 1, "m")  # was under way with it
        rests.append(auth.rests_s(now_s, "m"))
        now_s += rests[-1]
    assert rests == [10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]
    assert len(heard) == 3, "every five minutes"
    assert auth.refusals(now_s - 1) == ("key 1 of 1: authentication: no",)
    assert auth.refusals(now_s) == () and auth.count(now_s) == (1, 0)
    auth.failed(only, said, now_s + 301, "m")
    assert auth.rests_s(now_s + 301, "m") == 10.0, "it was well for a while"


@pytest.mark.parametrize("kind", ["payment"])
def test_what_is_of_the_key_holds_for_all_models_and_is_told_once(kind: FailureKind) -> None:
    auth, (a, b) = keys("a", "b")
    heard: list[RefusedKey] = []
    auth.tell("p", heard.append)
    said = Failure(kind=kind, message="no such key", status=401)
    assert auth.failed(b, said, 0.0, "m") is True
    auth.failed(b, said, 1.0, "other")  # was under way with it
    assert picked(auth, 2.0, 3) == [a, a, a] and auth.pick(2.0, "other") is a
    assert heard == [RefusedKey("p", 2, 2, kind, 401)]
    assert auth.refusals(2.0) == (f"key 2 of 2: {kind} 401: no such key",)
    auth.failed(b, said, 400.0, "m")
    assert len(heard) == 2, "it was asked again, and is refused still"
    assert auth.refusals(701.0) == ()


def test_models_that_rest_do_not_fill_memory() -> None:
    auth, (a,) = keys("a")
    for number in range(3000):
        auth.failed(a, failure("rate_limit", 60.0), 0.0, f"m{number}")
    assert auth.rests_s(0.0, "m2999") == 60.0 and auth.rests_s(0.0, "m0") == 0.0
    assert len(auth._of_models) == 1000
    auth.failed(a, failure("rate_limit", 60.0), 100.0, "m")
    assert len(auth._of_models) == 1, "those that are over go first"


def test_a_credential_of_somebody_else_changes_nothing() -> None:
    auth, (a,) = keys("a")
    _, (other,) = keys("other")
    assert auth.failed(other, failure("authentication"), 0.0) is False
    assert auth.pick(0.0) is a


def test_no_auth() -> None:
    auth = NoAuth()
    credential = auth.pick(0.0)
    assert credential is not None and asyncio.run(credential.headers(OUTGOING)) == ()
    assert auth.failed(credential, failure("authentication"), 0.0) is False
    assert auth.rests_s(0.0) == 0.0


def test_secrets_stay_where_they_are() -> None:
    secret = Secret("sk-hidden", "the variable A")
    auth, (key,) = keys("sk-hidden")
    for shown in (repr(secret), str(secret), f"{secret}", repr(auth), repr(key), str(key)):
        assert "sk-hidden" not in shown
    assert "the variable A" in repr(secret)
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="a secret must not be copied"):
            copied(secret)
    assert secret == Secret("sk-hidden", "elsewhere") and secret != Secret("sk-other", "a test")
    assert len({secret, Secret("sk-hidden", "elsewhere")}) == 1
