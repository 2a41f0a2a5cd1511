"""One address in front of many providers and engines: keys, routes, budgets, costs and a log."""
