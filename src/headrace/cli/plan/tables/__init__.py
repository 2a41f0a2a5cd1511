"""The tables that the commands of `headrace plan` print."""
