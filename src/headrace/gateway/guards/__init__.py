"""Guardrails: what is looked for in requests and answers, and what becomes of it."""
