"""Where models look for `ConfigReader`, which writers of files, a floor below, use as well."""

from headrace.weights.config_reader import ConfigReader

__all__ = ["ConfigReader"]
