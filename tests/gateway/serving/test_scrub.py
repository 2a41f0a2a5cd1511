"""A provider's words without our secrets."""

from __future__ import annotations

from headrace.gateway.serving.scrub import PassedScrub, without_secrets
from headrace.protocol.neutral.failure import Failure

KEY = "sk-0123456789abcdef"
HEADERS = (("authorization", f"Bearer {KEY}"), ("x-mode", "fast"))


def test_a_key_that_is_quoted_is_taken_out_wherever_it_stands() -> None:
    failure = Failure(
        kind="authentication", message=f"Incorrect: {KEY}. Sent: Bearer {KEY}", code=KEY, status=401
    )
    found = without_secrets(failure, HEADERS)
    assert found.message == "Incorrect: [secret]. Sent: [secret]"
    assert (found.code, found.status, found.kind) == ("[secret]", 401, "authentication")


def test_other_words_stay_as_they_are() -> None:
    failure = Failure(kind="server", message="Bearer of bad news: fast is not fast")
    assert without_secrets(failure, HEADERS) is failure
    assert without_secrets(failure, ()) is failure


PROOF = (("authorization", f"Bearer {KEY}"),)
OTHERS = (("http-referer", "https://chat.example"), ("x-extra-key", "extra/0123456789"))


def test_a_key_passes_in_no_event() -> None:
    scrub = PassedScrub(PROOF, OTHERS)
    for event in (
        b": key %b\n\n",
        b'event: odd\ndata: {"x":"%b"}\n\n',
        b'data: {"error":"%b"}\n\n',
    ):
        assert scrub.clean(event % KEY.encode()) == event % b"[secret]"


def test_what_answers_may_say_stays_but_in_errors_and_comments() -> None:
    scrub = PassedScrub(PROOF, OTHERS)
    said = b'data: {"choices":[{"delta":{"content":"see https://chat.example"}}]}\n\n'
    assert scrub.clean(said) is said, "an ordinary piece is not copied"
    assert b"[secret]" in scrub.clean(b'data: {"error":"from https://chat.example"}\n\n')
    assert b"[secret]" in scrub.clean(b"data: 1\n\n: sent extra\\/0123456789\n\n")
    scrub.has_failed = True
    assert b"[secret]" in scrub.clean(said)
