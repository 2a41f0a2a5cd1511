"""From the file to a running gateway: providers, targets, routes, accounts."""
