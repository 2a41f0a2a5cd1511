"""headrace beside a server that somebody runs already, on one machine, in turns."""
