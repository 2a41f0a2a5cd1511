"""headrace serves language models, routes to models served elsewhere, measures and plans them.

`headrace.LLM` is the engine in process. It is imported on first use, so that `import headrace`
stays cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.engine.params import SamplingParams
    from headrace.llm import LLM

__all__ = ["LLM", "SamplingParams", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "LLM":
        from headrace.llm import LLM

        return LLM
    if name == "SamplingParams":
        from headrace.engine.params import SamplingParams

        return SamplingParams
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")
