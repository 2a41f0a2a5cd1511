"""Which target is asked first, which next, and why."""
