"""HTTP/1.1 to providers: kept connections, bounded waits, replies as they come."""
