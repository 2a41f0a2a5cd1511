"""From the file to a gateway that serves: providers, targets, routes, accounts."""
