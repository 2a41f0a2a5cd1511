"""What listens: sockets, connections of strangers within limits, TLS, and the end of both.

Shared by whoever answers HTTP. Knows no routes and no engine.
"""
