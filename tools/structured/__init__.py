"""Judges of constrained answers, for benchmarks, fuzzers and tests."""
