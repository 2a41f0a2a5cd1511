"""Recorded agent sessions, replayed turn by turn through a server's dialects."""
