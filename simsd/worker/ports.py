"""Ports of this machine."""

import contextlib
import random
import socket


def free_port() -> int:
    """A port that was free a moment ago, outside the ranges of Ray's workers and of outgoing connections."""
    while True:
        port = random.randrange(20000, 30000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port
