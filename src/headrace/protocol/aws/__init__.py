"""AWS's own formats: signed requests and binary event streams."""
