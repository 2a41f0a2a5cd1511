"""Typed settings: the one source of flags, --help, the YAML file and docs/flags.md."""

from headrace.config.flags import Flag, flags_of
from headrace.config.load import build, parse_int, read_file
from headrace.config.settings import EngineConfig, ServerConfig

__all__ = [
    "EngineConfig",
    "Flag",
    "ServerConfig",
    "build",
    "flags_of",
    "parse_int",
    "read_file",
]
