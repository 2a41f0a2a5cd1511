"""What is refused by default, of real clients' requests to providers of other dialects."""

from __future__ import annotations

import pytest

from tests.gateway.unsupported.paths import found
from tests.gateway.unsupported.shapes import SHAPES
from tests.gateway.unsupported.share import (
    Outcome,
    is_portable,
    outcomes,
    recorded,
    served_nowhere,
)

# Shares of the pairs of a recorded request and a provider of another dialect: of all requests, and
# of those without tools and references that only one vendor has.
_MOST_REFUSED = 0.22
_MOST_PORTABLE_REFUSED = 0.065


def _named(outcome: Outcome) -> list[str]:
    """The fields that a refusal names."""
    names = outcome.message.partition("it does not support ")[2].partition("; omit")[0]
    return names.split(", ") if names else []


def test_the_providers_speak_the_dialects_they_are_named_after() -> None:
    built = served_nowhere()
    assert all(provider.side.name == name for name, provider in built.providers.items())
    built.close()


async def test_no_shape_is_refused_by_default() -> None:
    told = await outcomes(SHAPES)
    assert len(told) == 49
    assert [(one.shape.name, one.provider, one.message) for one in told if one.is_refused] == []


async def test_the_strict_refuse_them_and_name_fields_of_the_clients_own() -> None:
    told = await outcomes(SHAPES, unsupported="refuse")
    refused = [one for one in told if one.is_refused]
    assert len(refused) > 40
    for one in refused:
        names = _named(one)
        assert names, one.message
        headers = dict(one.shape.headers)
        lost = [name for name in names if name not in headers and not found(one.shape.body, name)]
        assert not lost, f"{one.shape.name} at {one.provider}: {lost}"


@pytest.mark.long
@pytest.mark.usefixtures("recordings")
async def test_few_recorded_requests_are_refused_and_each_for_a_field_that_it_has() -> None:
    told = await outcomes(recorded())
    refused = [one for one in told if one.is_refused]
    assert len(told) > 6000 and len(refused) / len(told) <= _MOST_REFUSED
    portable = [one for one in told if is_portable(one.shape)]
    refused_portable = [one for one in portable if one.is_refused]
    assert len(portable) > 4500
    assert len(refused_portable) / len(portable) <= _MOST_PORTABLE_REFUSED
    for one in refused:
        for name in _named(one):
            assert found(one.shape.body, name), f"{one.shape.name} at {one.provider}: {name}"
