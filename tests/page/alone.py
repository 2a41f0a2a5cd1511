"""What holds of every page that is written: it needs nothing from outside, and allows none."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256

from tests.page.test_markup import Parsed

_LOADS = frozenset({"link", "img", "iframe", "object", "embed", "base", "form"})


def assert_stands_alone(page: str, *, most_script: int) -> None:
    """Links lead within the page; the policy names what is in it; most_script: characters of it."""
    parsed = Parsed(page)
    for name, facts in parsed.tags:
        assert name not in _LOADS
        assert not {"src", "style"} & facts.keys()
        assert (facts.get("href") or "#").startswith("#")
    assert "url(" not in page and "@import" not in page
    policy = next(facts["content"] or "" for _, facts in parsed.tags if "http-equiv" in facts)
    assert policy.startswith("default-src 'none'")
    for name in ("style", "script"):
        (inside,) = re.findall(f"<{name}>(.*?)</{name}>", page, flags=re.DOTALL)
        digest = b64encode(sha256(inside.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy, "else a browser ignores it"
    (script,) = re.findall("<script>(.*?)</script>", page, flags=re.DOTALL)
    assert len(script) < most_script
