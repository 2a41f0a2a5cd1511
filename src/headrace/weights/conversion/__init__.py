"""From one container to the other."""
