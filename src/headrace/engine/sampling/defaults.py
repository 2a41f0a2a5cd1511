"""A model's own sampling defaults: the values of the parameters that a request leaves out.

They are what `generation_config.json`, or `general.sampling.*` of a GGUF file, recommends. A value
in a request always wins; a parameter that neither names has its neutral value. Which parameters
have such defaults, and the words of the setting, are vLLM's (`--generation-config`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.engine.params import MODEL_DEFAULTS, RANGES, SamplingParams
from headrace.engine.sampling.sampler_order import NEUTRAL
from headrace.errors import CheckpointError, ConfigError, shown
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.files.json_file import read_json_object
from headrace.weights.files.user_path import user_path
from headrace.weights.gguf.config import SAMPLING

logger = logging.getLogger(__name__)

SamplingDefaults = Mapping[str, float]
"""Values by the name of the parameter, only of those that the model names."""

_SAMPLER_OF = {name: sampler for sampler, names in NEUTRAL.items() for name in names}
_GGUF_KEYS = {name: f"general.sampling.{key}" for key, name in SAMPLING.items()}
_FILE = "generation_config.json"


def sampling_defaults(checkpoint: Checkpoint, setting: str) -> SamplingDefaults:
    """The defaults in force for a model; setting: `generation_config` of EngineConfig."""
    stated = stated_defaults(setting)
    return model_defaults(checkpoint) if stated is None else stated


def stated_defaults(setting: str) -> SamplingDefaults | None:
    """The defaults that `generation_config` of EngineConfig names itself; None for `auto`.

    Raises ConfigError naming the file, the field and what is accepted.
    """
    if setting == "auto":
        return None
    if setting in ("vllm", "none"):
        return {}
    path = user_path(setting)
    try:
        if path.is_dir():
            path /= _FILE
        stated = read_json_object(path)
    except (CheckpointError, OSError) as error:  # a name too long for the file system
        raise ConfigError(
            f"--generation-config {shown(setting)}: {error}. It takes auto, vllm, none, or the "
            f"path of a {_FILE} or of its folder"
        ) from error
    defaults, problems = _checked(stated)
    if problems:
        raise ConfigError(f"--generation-config: {path}: {'; '.join(problems.values())}")
    return defaults


def model_defaults(checkpoint: Checkpoint) -> SamplingDefaults:
    """The defaults in the files of a model. A value that cannot be used is logged, and left out."""
    defaults, problems = _checked(checkpoint.generation_config)
    folder = checkpoint.format == "safetensors"
    for name, problem in problems.items():
        place = checkpoint.path / _FILE if folder else f"{checkpoint.path}: {_GGUF_KEYS[name]}"
        logger.warning("%s: %s; this default is not used", place, problem)
    return defaults


def completed(
    given: Mapping[str, Any], defaults: SamplingDefaults, samplers: Sequence[str]
) -> dict[str, Any]:
    """Values for the parameters of MODEL_DEFAULTS; `given` has None where a request names none.

    A step that `samplers` omits has no parameter to take from the model. What is absent from the
    result has its neutral value.
    """
    values = {name: given[name] for name in MODEL_DEFAULTS if given[name] is not None}
    return values | {
        name: default
        for name, default in defaults.items()
        if name not in values and _SAMPLER_OF[name] in samplers
    }


def described(defaults: SamplingDefaults) -> str:
    """Defaults in words: "temperature 0.6, top_p 0.9"; "" where every one is neutral."""
    return ", ".join(f"{name} {value:g}" for name, value in defaults.items())


def in_full(defaults: SamplingDefaults) -> dict[str, float]:
    """Every parameter that a model may have a default for, with the value in force."""
    neutral = SamplingParams()
    return {name: defaults.get(name, getattr(neutral, name)) for name in MODEL_DEFAULTS}


def _checked(stated: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, str]]:
    """The usable values of a generation config, and by name what is wrong with the others."""
    defaults: dict[str, float] = {}
    problems: dict[str, str] = {}
    for name in MODEL_DEFAULTS:
        value = stated.get(name)
        if value is None:
            continue
        whole = name == "top_k"
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if number and value in RANGES[name] and (not whole or value == int(value)):
            defaults[name] = int(value) if whole else float(value)
        else:
            kind = "an integer, " if whole else ""
            problems[name] = f"{name} is {shown(value)}; it must be {kind}{RANGES[name]}"
    return defaults, problems
