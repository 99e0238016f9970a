"""Client of SimSD Serve's gRPC interface; imports neither torch nor Ray.

`SimSDClient` and `AsyncSimSDClient` cover what most need; the messages and the plain stub are in `simsd_client.v1`.
"""

from simsd_client.client import AsyncSimSDClient, SimSDClient
from simsd_client.errors import CallError
from simsd_client.requests import Options, Prompt, Text

__all__ = ["AsyncSimSDClient", "CallError", "Options", "Prompt", "SimSDClient", "Text"]
