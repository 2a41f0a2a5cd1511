"""How many published models run here: their configs shrunk to tiny instances, and as published."""
