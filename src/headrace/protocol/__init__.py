"""Wire formats as typed models, and the one SSE writer and reader. Knows no engine and no HTTP."""
