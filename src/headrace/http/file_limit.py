"""Room for connections: each is an open file, and shells commonly allow 1,024 of them."""

from __future__ import annotations

import logging
import resource

logger = logging.getLogger(__name__)

# Weights, sockets to the engine, logs, and connections that are being sent away.
OTHER_FILES = 256


def raise_file_limit(max_connections: int) -> int:
    """Raise this process's limit of open files as far as is needed and allowed.

    Returns how many connections there is room for, at most max_connections. Where that is less, a
    warning says so: connections that took the last file would also keep a new engine from starting.
    """
    needed = max_connections + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return max_connections
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (OSError, ValueError) as error:  # macOS has a limit of the kernel's own
        logger.debug("the limit of open files stays %d: %s", soft, error)
        allowed = soft
    if allowed >= needed:
        return max_connections
    room = max(1, allowed - OTHER_FILES, allowed // 4)
    logger.warning(
        "this process may open only %d files, too few for --max-connections %d; at most %d "
        "connections are served at once. Raise the limit (ulimit -n %d), or lower "
        "--max-connections",
        allowed,
        max_connections,
        min(room, max_connections),
        needed,
    )
    return min(room, max_connections)
