"""Replicate's predictions: made by one request, then streamed or polled (`steps`)."""

from headrace.protocol.dialects.replicate.provider import ReplicateProvider
from headrace.protocol.dialects.replicate.steps import ReplicateSteps
from headrace.protocol.dialects.replicate.stream_reader import ReplicateStreamReader
from headrace.protocol.neutral.steps import ProviderRequest

PROVIDER = ReplicateProvider()

__all__ = [
    "PROVIDER",
    "ProviderRequest",
    "ReplicateProvider",
    "ReplicateSteps",
    "ReplicateStreamReader",
]
