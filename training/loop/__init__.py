"""The training loop that every member shares."""
