"""Load runs: which request is sent when, the clients that send them, and what is learnt of both."""
