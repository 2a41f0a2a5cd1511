"""What engines of ours tell of themselves, and which of them is asked by it."""
