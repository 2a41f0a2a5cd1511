"""AWS Signature Version 4, against AWS's published test suite and against botocore."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.aws.sigv4 import Credentials, signing_headers, signing_key

# The test suite's own: https://docs.aws.amazon.com/general/latest/gr/signature-v4-test-suite.html
KEYS = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
NOW = datetime(2015, 8, 30, 12, 36, 0, tzinfo=UTC).timestamp()
HOST = "example.amazonaws.com"


class Vector(NamedTuple):
    """A request of the suite and its signature."""

    signature: str
    path: str = "/"
    method: str = "GET"
    headers: Mapping[str, str] = {}
    signed: str = "host;x-amz-date"
    body: bytes = b""


_VANILLA = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
VECTORS = {
    "get-vanilla": Vector(_VANILLA),
    "get-slash": Vector(_VANILLA, "//"),
    "get-slash-dot-slash": Vector(_VANILLA, "/./"),
    "get-relative": Vector(_VANILLA, "/example/.."),
    "get-relative-relative": Vector(_VANILLA, "/example1/example2/../.."),
    "get-vanilla-empty-query-key": Vector(
        "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb", "/?Param1=value1"
    ),
    "get-vanilla-query-order-key-case": Vector(
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        "/?Param2=value2&Param1=value1",
    ),
    "get-vanilla-query-order-key": Vector(
        "eedbc4e291e521cf13422ffca22be7d2eb8146eecf653089df300a15b2382bd1",
        "/?Param1=value2&Param1=Value1",
    ),
    "get-vanilla-query-order-value": Vector(
        "5772eed61e12b33fae39ee5e7012498b51d56abc0abb7c60486157bd471c4694",
        "/?Param1=value2&Param1=value1",
    ),
    "get-vanilla-utf8-query": Vector(
        "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04", "/?ሴ=bar"
    ),
    "get-utf8": Vector("8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85", "/ሴ"),
    "get-unreserved": Vector(
        "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f",
        "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
    ),
    "post-vanilla": Vector(
        "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b", method="POST"
    ),
    "post-vanilla-query": Vector(
        "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11",
        "/?Param1=value1",
        "POST",
    ),
    "post-header-key-sort": Vector(
        "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c",
        method="POST",
        headers={"My-Header1": "value1"},
        signed="host;my-header1;x-amz-date",
    ),
    "post-header-value-case": Vector(
        "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d",
        method="POST",
        headers={"My-Header1": "VALUE1"},
        signed="host;my-header1;x-amz-date",
    ),
    "get-header-value-trim": Vector(
        "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
        headers={"My-Header1": " value1", "My-Header2": ' "a   b   c"'},
        signed="host;my-header1;my-header2;x-amz-date",
    ),
    "post-x-www-form-urlencoded": Vector(
        "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
        method="POST",
        headers=_FORM,
        signed="content-type;host;x-amz-date",
        body=b"Param1=value1",
    ),
}


def _signed(vector: Vector, keys: Credentials = KEYS) -> dict[str, str]:
    return signing_headers(
        keys,
        method=vector.method,
        host=HOST,
        path=vector.path,
        headers=vector.headers,
        body=vector.body,
        region="us-east-1",
        service="service",
        unix_s=NOW,
    )


@pytest.mark.parametrize("name", VECTORS)
def test_aws_test_suite(name: str) -> None:
    vector = VECTORS[name]
    assert _signed(vector) == {
        "X-Amz-Date": "20150830T123600Z",
        "Authorization": (
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
            f"SignedHeaders={vector.signed}, Signature={vector.signature}"
        ),
    }


def test_the_key_of_awss_worked_example() -> None:
    key = signing_key(KEYS.secret_access_key, "20150830", "us-east-1", "iam")
    assert key.hex() == "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9"


S3_KEYS = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")


@pytest.mark.parametrize(
    ("vector", "signature"),
    [
        (
            Vector("", "/test.txt", headers={"Range": "bytes=0-9"}),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            Vector(
                "",
                "/test%24file.text",
                "PUT",
                headers={
                    "Date": "Fri, 24 May 2013 00:00:00 GMT",
                    "x-amz-storage-class": "REDUCED_REDUNDANCY",
                },
                body=b"Welcome to Amazon S3.",
            ),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
    ],
    ids=["get", "put"],
)
def test_s3_encodes_a_path_once(vector: Vector, signature: str) -> None:
    """AWS's worked examples: docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth"""
    added = signing_headers(
        S3_KEYS,
        method=vector.method,
        host="examplebucket.s3.amazonaws.com",
        path=vector.path,
        headers=vector.headers,
        body=vector.body,
        region="us-east-1",
        service="s3",
        unix_s=datetime(2013, 5, 24, tzinfo=UTC).timestamp(),
    )
    assert added["Authorization"].endswith(f"Signature={signature}")
    assert len(added["X-Amz-Content-SHA256"]) == 64


def test_a_session_token_is_sent_and_signed() -> None:
    keys = Credentials(KEYS.access_key_id, KEYS.secret_access_key, "TOKEN")
    added = _signed(Vector("", method="POST"), keys)
    assert added["X-Amz-Security-Token"] == "TOKEN"
    assert "SignedHeaders=host;x-amz-date;x-amz-security-token," in added["Authorization"]


def test_headers_that_proxies_change_are_not_signed() -> None:
    vector = Vector(_VANILLA, headers={"User-Agent": "x", "Connection": "close", "Expect": "y"})
    assert _VANILLA in _signed(vector)["Authorization"]


def test_keys_are_not_shown() -> None:
    keys = Credentials("AKIDEXAMPLE", "SECRET", "TOKEN")
    assert "SECRET" not in repr(keys)
    assert "TOKEN" not in repr(keys)


MODELS = (
    "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/mi1dadi0g15f",
    "a b/ü~(1)*'!$&+,;=@",
)


@pytest.mark.parametrize("model", MODELS)
def test_the_same_as_botocore(model: str) -> None:
    """The path is encoded a second time in the signature: the colon of a model id shows it."""
    auth = pytest.importorskip("botocore.auth")
    awsrequest = pytest.importorskip("botocore.awsrequest")
    credentials = pytest.importorskip("botocore.credentials")
    host = "bedrock-runtime.eu-west-1.amazonaws.com"
    path = f"/model/{quote(model, safe='')}/converse"
    for token in (None, "TOKEN+/="):
        request = awsrequest.AWSRequest(
            "POST", f"https://{host}{path}", {"Content-Type": "application/json"}, b'{"a": 1}'
        )
        auth.SigV4Auth(
            credentials.Credentials("AKID", "SECRET", token), "bedrock", "eu-west-1"
        ).add_auth(request)
        stamp = request.headers["X-Amz-Date"]
        now = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
        ours = signing_headers(
            Credentials("AKID", "SECRET", token),
            method="POST",
            host=host,
            path=path,
            headers={"Content-Type": "application/json"},
            body=b'{"a": 1}',
            region="eu-west-1",
            service="bedrock",
            unix_s=now,
        )
        assert ours["Authorization"] == request.headers["Authorization"]


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=40), st.text(max_size=40))
def test_any_path_and_header_can_be_signed(path: str, value: str) -> None:
    """Text without surrogates, as it comes from a URL."""
    clean = path.encode(errors="ignore").decode()
    vector = Vector("", "/" + clean, headers={"x-a": value.encode(errors="ignore").decode()})
    assert _signed(vector) == _signed(vector)
