"""What a config.json says of a model, read key by key."""
