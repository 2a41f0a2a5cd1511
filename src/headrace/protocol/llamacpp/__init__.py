"""llama-server's own API: /completion and /infill. Source: its README, 2026."""
