"""HTTP/1.1 to providers: connections that are kept, bounded waits, replies as they arrive."""
