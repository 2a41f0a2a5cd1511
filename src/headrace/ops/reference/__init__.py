"""The reference backend: slow NumPy that says what every operation means."""

from headrace.ops.reference.backend import ReferenceOps

__all__ = ["ReferenceOps"]
