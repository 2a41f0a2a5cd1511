"""What speculation gains, what a step of more rows costs, and whether anybody loses by it."""
