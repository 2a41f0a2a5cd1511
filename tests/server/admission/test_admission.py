"""The queue's bounds hold at every moment, whatever comes, starts and ends in which order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.server.admission.admission import (
    RECENT_ENDS,
    RETRY_LEAST_S,
    RETRY_MOST_S,
    RETRY_UNKNOWN_S,
    Admission,
    Ticket,
)
from headrace.server.api_error import ApiError


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def admission(
    max_requests: int = 4, max_tokens: int = 100, slots: int = 2, clock: Clock | None = None
) -> Admission:
    return Admission(max_requests, max_tokens, slots=slots, clock=clock or Clock())


def refused(queue: Admission, num_requests: int = 1) -> ApiError:
    with pytest.raises(ApiError) as caught:
        queue.enter(num_requests)
    return caught.value


def test_free_seats_are_places_too() -> None:
    queue = admission(max_requests=1, slots=2)
    tickets = [queue.enter(1) for _ in range(3)]
    error = refused(queue)
    assert (error.status, error.detail.code) == (429, "queue_full")
    assert "3 requests are queued and this would add 1; the limit is 3" in error.detail.message
    tickets[0].started(0)  # it takes a slot: one place fewer, one queued fewer
    assert refused(queue).status == 429
    tickets[0].ended(0)
    queue.enter(1)


def test_without_a_queue_only_what_can_run_comes_in() -> None:
    queue = admission(max_requests=0, slots=2)
    tickets = [queue.enter(1) for _ in range(2)]
    assert refused(queue).status == 429
    for ticket in tickets:
        ticket.started(0)
    assert refused(queue).status == 429
    tickets[0].close()
    queue.enter(1)


def test_all_choices_come_in_or_none() -> None:
    queue = admission(max_requests=2, slots=2)
    queue.enter(2)
    assert refused(queue, 3).status == 429
    assert queue.num_queued == 2
    assert queue.refused == {"requests": 3}, "each that found no place"
    queue.enter(2)


def test_more_than_there_ever_is_room_for_is_a_bad_request() -> None:
    error = refused(admission(max_requests=4, slots=2), 7)
    assert (error.status, error.detail.code) == (400, "too_many_choices")
    assert "at most 6" in error.detail.message


def test_a_long_prompt_comes_in_alone_and_keeps_others_out() -> None:
    queue = admission(max_tokens=100)
    long = queue.enter(1)
    long.add_tokens([500])
    other = queue.enter(1)
    with pytest.raises(ApiError) as caught:
        other.add_tokens([1])
    assert "500 prompt tokens are queued and this would add 1; the limit is 100" in str(
        caught.value
    )
    assert queue.refused == {"tokens": 1}
    other.close()
    assert (queue.num_queued, queue.num_queued_tokens) == (1, 500)
    long.started(0)
    assert queue.num_queued_tokens == 0
    queue.enter(1).add_tokens([100])


def test_retry_after_is_how_long_the_queue_takes_to_empty() -> None:
    clock = Clock()
    queue = admission(max_requests=4, slots=1, clock=clock)
    waiting = [queue.enter(1) for _ in range(5)]
    assert refused(queue).headers == {"retry-after": str(RETRY_UNKNOWN_S)}
    for _ in range(10):  # one start every 3 s
        clock.now_s += 3.0
        ticket = waiting.pop(0)
        ticket.started(0)
        ticket.close()
        waiting.append(queue.enter(1))
    clock.now_s += 3.0
    wait_s = int(refused(queue).headers["retry-after"])
    assert 13 <= wait_s <= 17  # five queued, three seconds each
    clock.now_s += 10_000
    assert refused(queue).headers == {"retry-after": str(RETRY_MOST_S)}


def test_the_pace_is_that_of_the_queue_and_not_of_the_quiet_hour_before() -> None:
    clock = Clock()
    queue = admission(max_requests=4, slots=1, clock=clock)
    for _ in range(RECENT_ENDS + 20):  # a request every three minutes, each done at once
        clock.now_s += 180.0
        ticket = queue.enter(1)
        ticket.started(0)
        ticket.close()
    clock.now_s += 180.0
    waiting = [queue.enter(1) for _ in range(5)]
    assert refused(queue).headers == {"retry-after": str(RETRY_UNKNOWN_S)}
    for _ in range(4):
        clock.now_s += 0.5
        ticket = waiting.pop(0)
        ticket.started(0)
        ticket.close()
        waiting.append(queue.enter(1))
    assert 1 <= int(refused(queue).headers["retry-after"]) <= 3


def test_one_end_is_no_pace_and_two_in_one_moment_are_the_fastest() -> None:
    queue = admission(max_requests=4, slots=2, clock=Clock())
    waiting = [queue.enter(1) for _ in range(6)]
    for told_s in (RETRY_UNKNOWN_S, RETRY_LEAST_S):
        ticket = waiting.pop(0)
        ticket.started(0)
        ticket.close()
        waiting.append(queue.enter(1))
        assert refused(queue).headers == {"retry-after": str(told_s)}


def test_filling_free_seats_is_no_pace() -> None:
    clock = Clock()
    queue = admission(max_requests=100, slots=50, clock=clock)
    tickets = [queue.enter(1) for _ in range(150)]
    running = [tickets.pop(0) for _ in range(50)]
    for ticket in running:  # all slots are filled at once
        clock.now_s += 0.0001
        ticket.started(0)
    assert refused(queue).headers == {"retry-after": str(RETRY_UNKNOWN_S)}
    for _ in range(6):  # and every ten seconds all fifty end within a moment
        clock.now_s += 10.0
        for ticket in running:
            ticket.close()
        running = [tickets.pop(0) for _ in range(50)]
        for ticket in running:
            ticket.started(0)
        tickets += [queue.enter(1) for _ in range(50)]
        wait_s = int(refused(queue).headers["retry-after"])
        assert 15 <= wait_s <= 30, "a hundred wait, fifty are done every ten seconds"


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(0, 60)), max_size=60))
def test_the_count_is_exact_at_every_moment(moves: list[tuple[int, int, int]]) -> None:
    queue = admission()
    open_tickets: list[tuple[Ticket, int]] = []
    for kind, which, amount in moves:
        if kind <= 1:
            try:
                ticket = queue.enter(1 + which % 3)
            except ApiError:
                continue
            open_tickets.append((ticket, 1 + which % 3))
            try:
                ticket.add_tokens([amount] * (1 + which % 3))
            except ApiError:
                ticket.close()
                open_tickets.pop()
        elif open_tickets:
            ticket, size = open_tickets[which % len(open_tickets)]
            if kind == 2:
                ticket.started(amount % size)
            elif kind == 3:
                ticket.ended(amount % size)
            else:
                ticket.close()
                open_tickets.remove((ticket, size))
        queued = [index for one, _ in open_tickets for index in one._queued]
        tokens = [one._tokens[index] for one, _ in open_tickets for index in one._queued]
        assert queue.num_queued == len(queued) <= 4 + 2
        assert queue.num_queued_tokens == sum(tokens)
        assert queue.num_running == sum(len(one._running) for one, _ in open_tickets)
    for ticket, _ in open_tickets:
        ticket.close()
    assert (queue.num_queued, queue.num_queued_tokens, queue.num_running) == (0, 0, 0)


def test_a_full_queue_refuses_before_a_body_is_read() -> None:
    queue = admission(max_requests=1, slots=1)
    queue.check_room()
    ticket = queue.enter(1)
    queue.check_room()
    queue.enter(1)
    with pytest.raises(ApiError) as caught:
        queue.check_room()
    assert (caught.value.status, caught.value.detail.code) == (429, "queue_full")
    assert "2 requests are queued and this would add at least 1; the limit is 2" in str(
        caught.value
    )
    assert (queue.refused, queue.num_queued) == ({"requests": 1}, 2)
    ticket.close()
    queue.check_room()


def shared(max_requests: int = 8, max_tokens: int = 100, slots: int = 2) -> Admission:
    return Admission(max_requests, max_tokens, slots=slots, clock=Clock(), by_key=True)


def full_for(queue: Admission, key: str, num_requests: int = 1) -> str:
    with pytest.raises(ApiError) as caught:
        queue.enter(num_requests, key)
    assert (caught.value.status, caught.value.detail.code) == (429, "queue_full")
    return caught.value.detail.message


def test_one_of_several_keys_leaves_half_of_the_queue_to_the_others() -> None:
    queue = shared()
    for _ in range(2 + 4):
        queue.check_room("a")
        queue.enter(1, "a")
    message = full_for(queue, "a")
    assert "6 requests of this key are queued and this would add 1; its share is 6" in message
    with pytest.raises(ApiError):
        queue.check_room("a")
    # Each that comes finds a place, and half of what is left.
    queue.enter(2, "b")
    assert "its share is 2" in full_for(queue, "b")
    queue.enter(1, "c")
    queue.enter(1, "d")
    assert "10 requests are queued and this would add 1; the limit is 10" in full_for(queue, "e")
    assert queue.num_queued_keys == 4


def test_free_slots_are_for_whoever_comes() -> None:
    queue = shared(max_requests=0, slots=3)
    tickets = [queue.enter(1, "a") for _ in range(3)]
    full_for(queue, "b")
    tickets[0].close()
    queue.enter(1, "b")


def test_a_share_grows_as_others_leave() -> None:
    queue = shared()
    others = [queue.enter(1, "a") for _ in range(6)]
    mine = queue.enter(2, "b")
    full_for(queue, "b")
    for ticket in others:
        ticket.close()
    queue.enter(4, "b")
    mine.close()
    assert queue.num_queued_keys == 1


def test_a_call_has_at_most_the_share_of_an_empty_queue() -> None:
    queue = shared()
    with pytest.raises(ApiError) as caught:
        queue.enter(7, "a")
    assert (caught.value.status, caught.value.detail.code) == (400, "too_many_choices")
    assert "at most 6 are accepted at once: 2 running (--max-num-seqs) and 4 waiting" in str(
        caught.value
    )
    queue.enter(6, "a")


def test_prompt_tokens_are_shared_as_well() -> None:
    queue = shared(max_tokens=100)
    queue.enter(1, "a").add_tokens([50])
    more = queue.enter(1, "a")
    with pytest.raises(ApiError, match="50 prompt tokens of this key are queued"):
        more.add_tokens([1])
    queue.enter(1, "b").add_tokens([25])
    with pytest.raises(ApiError, match="its share is 25"):
        queue.enter(1, "b").add_tokens([1])
    with pytest.raises(ApiError, match="75 prompt tokens are queued and this would add 26"):
        queue.enter(1, "c").add_tokens([26])
    assert queue.refused == {"tokens": 3}


def test_without_shares_keys_do_not_count() -> None:
    queue = admission(max_requests=4, slots=2)
    for key in "aaaabb":
        (turn,) = queue.enter(1, key).ask_turns([0])
        assert turn is None
    assert queue.num_queued_keys == 1
    assert refused(queue).status == 429
