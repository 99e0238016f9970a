"""Free ports of this machine."""

import contextlib
import random
import socket


def free_port() -> int:
    """Return a port that is free now, outside the ranges of Ray's workers and of outgoing connections."""
    while True:
        port = random.randrange(20000, 30000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port
