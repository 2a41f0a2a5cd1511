"""Who is on which side, and when a side is taken out."""

from __future__ import annotations

from collections import Counter

import pytest

from headrace.errors import RequestError
from headrace.gateway.routing.variants import TakenOut, Variant, Variants, Who
from headrace.gateway.settings.traffic import AssignBy, RollbackSettings
from tests.gateway.routing.parts import A, B, C

USERS = [f"user-{at}" for at in range(2000)]


def sides(control: float, new: float, **more: object) -> Variants:
    by: AssignBy = more.pop("by", "user")  # type: ignore[assignment]
    both = (Variant("control", control, (A,)), Variant("new", new, (B,)))
    return Variants("chat", both, by, **more)  # type: ignore[arg-type]


def side_of(variants: Variants, who: Who) -> str:
    return variants.order(who)[0].variant.name


def users_of(variants: Variants, name: str) -> set[str]:
    return {one for one in USERS if side_of(variants, Who(user=one)) == name}


def test_sides_have_their_weights_and_users_stay_while_one_grows() -> None:
    before = users_of(sides(90, 10), "new")
    # 2,000 draws with p = 0.1 are within 4 standard deviations of 200.
    assert 146 < len(before) < 254
    for control, new in ((80, 20), (50, 50), (0, 100)):
        after = users_of(sides(control, new), "new")
        assert before <= after
        before = after
    assert len(before) == len(USERS)


def test_it_is_the_same_in_every_process_and_another_for_every_model() -> None:
    again = users_of(sides(50, 50), "new")
    assert again == users_of(sides(50, 50), "new")
    both = (Variant("control", 50, (A,)), Variant("new", 50, (B,)))
    other = Variants("other", both, "user")
    assert 0.4 < len(again & users_of(other, "new")) / len(again) < 0.6


def test_what_stands_in_for_a_user_that_is_not_said() -> None:
    variants = sides(50, 50)
    for who, alike in (
        (Who(user="u", session="x", request="1"), Who(user="u", session="y", request="2")),
        (Who(session="s", key="k", request="1"), Who(session="s", key="l", request="2")),
        (Who(key="k", request="1"), Who(key="k", request="2")),
    ):
        assert side_of(variants, who) == side_of(variants, alike)
    drawn = Counter(side_of(variants, Who(request=str(at))) for at in range(400))
    assert 140 < drawn["new"] < 260
    by_key = sides(50, 50, by="key")
    drawn = Counter(side_of(by_key, Who(user=str(at), key="k")) for at in range(50))
    assert len(drawn) == 1, "the key decides, whoever its user is"


def test_the_other_side_stands_in() -> None:
    three = Variants(
        "chat",
        (Variant("a", 0, (A,)), Variant("b", 0, (B,)), Variant("c", 1, (C,))),
        "user",
    )
    order = three.order(Who(user="u"))
    assert [one.variant.name for one in order] == ["c", "a", "b"]
    assert order[0].reason == "variant c: 1 of 1 by user"
    assert "replaces c" in order[1].reason


def test_a_header_is_followed_only_of_those_who_may_choose() -> None:
    closed = sides(100, 0, choosers=("testers",))
    with pytest.raises(RequestError, match="may not choose a variant of model chat"):
        closed.order(Who(user="u", chosen="new"))
    assert side_of(closed, Who(user="u", chosen="new", tags=("testers", "x"))) == "new"
    everybody = sides(100, 0, choosers=("*",))
    assert side_of(everybody, Who(chosen="new")) == "new"
    with pytest.raises(RequestError, match=r"no variant .*; there are control, new"):
        everybody.order(Who(chosen="nwe"))


def test_a_side_that_fails_more_is_taken_out_once() -> None:
    told: list[TakenOut] = []
    rollback = RollbackSettings(error_share=0.2, window_requests=50)
    variants = sides(50, 50, rollback=rollback, on_taken_out=told.append)
    for at in range(200):
        variants.ended("control", failed=at % 10 == 0)  # 10 %
        variants.ended("new", failed=at % 4 == 0)  # 25 %, which is 15 more
    assert not variants.out
    for _ in range(49):
        variants.ended("new", failed=False)
    for _ in range(14):
        variants.ended("new", failed=True)
    assert not variants.out, "28 % of the last 50 are 18 more than 10 %"
    variants.ended("new", failed=True)
    assert [one.variant for one in told] == ["new"]
    assert told[0].error_share == pytest.approx(0.3) and told[0].over == 50
    variants.ended("new", failed=True)
    assert len(told) == 1
    assert users_of(variants, "new") == set()
    assert [one.variant.name for one in variants.order(Who(user="u"))] == ["control"]
    chosen = sides(50, 50, choosers=("*",))
    chosen.out.update(variants.out)
    assert side_of(chosen, Who(chosen="new")) == "new", "to see whether it is mended"


def test_few_requests_say_nothing_and_the_first_side_is_never_taken_out() -> None:
    variants = sides(50, 50, rollback=RollbackSettings(error_share=0.1, window_requests=50))
    for _ in range(49):
        variants.ended("new", failed=True)
    for _ in range(100):
        variants.ended("control", failed=True)
    assert not variants.out


def test_both_fail_alike_where_clients_are_at_fault() -> None:
    variants = sides(50, 50, rollback=RollbackSettings(error_share=0.2, window_requests=20))
    for at in range(200):
        variants.ended("control", failed=at % 2 == 0)
        variants.ended("new", failed=at % 2 == 0)
    assert not variants.out
