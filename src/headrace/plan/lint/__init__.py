"""Pitfalls as checks over configs of engines and gateways, bench results and prompts."""
