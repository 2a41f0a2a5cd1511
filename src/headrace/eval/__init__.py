"""Quality: what a checkpoint makes of real text, alone and beside another."""
