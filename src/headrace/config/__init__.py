"""Typed settings: the one source of flags, --help, the YAML file and docs/flags.md."""

from headrace.config.flags import Flag, flags_of
from headrace.config.load import build, expectation, from_environment, parse_int, read_file
from headrace.config.server_settings import ServerConfig
from headrace.config.settings import EngineConfig

__all__ = [
    "EngineConfig",
    "Flag",
    "ServerConfig",
    "build",
    "expectation",
    "flags_of",
    "from_environment",
    "parse_int",
    "read_file",
]
