"""What drafts of a model and of a head share: passes over rows, a cache, when they pay."""
