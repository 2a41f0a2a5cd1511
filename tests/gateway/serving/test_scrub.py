"""A provider's words without our secrets."""

from __future__ import annotations

from headrace.gateway.serving.scrub import without_secrets
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
