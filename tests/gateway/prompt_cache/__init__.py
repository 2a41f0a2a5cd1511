"""Tests of `headrace.gateway.prompt_cache`."""
