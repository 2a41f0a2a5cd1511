"""llama-server's own endpoints, on the way that completions take."""
