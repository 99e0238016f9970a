"""The client of SimSD Serve's gRPC interface. It imports neither torch nor Ray.

`SimSDClient` and `AsyncSimSDClient` cover the usual calls; the messages and the plain stub are in `simsd_client.v1`.
"""

from simsd_client.client import AsyncSimSDClient, SimSDClient
from simsd_client.errors import CallError
from simsd_client.requests import Options, Prompt, Text

__all__ = ["AsyncSimSDClient", "CallError", "Options", "Prompt", "SimSDClient", "Text"]
