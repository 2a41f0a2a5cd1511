"""The load that the operator's own engines report, and routing by it."""
