"""One file per endpoint: from a parsed request to a reply."""
