"""The gateway's observability: metrics, spans, log, state."""
