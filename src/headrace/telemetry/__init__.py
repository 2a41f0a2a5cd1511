"""Metrics. Knows neither engine nor server: it is handed what it shows."""
