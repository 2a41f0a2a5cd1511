"""One step of an engine: what it moves and computes, and the seconds that takes on a device."""
