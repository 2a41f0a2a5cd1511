"""The same prompts to many endpoints, round after round, and how they compare over time."""
