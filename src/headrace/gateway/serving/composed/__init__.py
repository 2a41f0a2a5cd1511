"""Models made of other models: chosen by complexity, asked in turn, or drafted and finished."""
