"""Questions that mean the same get the same answer: vectors of the last thing a user said."""
