"""Predictions: what fits, how fast, at what cost; each figure with formula, inputs and error."""
