"""The clients: one for threads, one for asyncio."""

from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar, Unpack

import grpc

from simsd_client.errors import from_rpc_error
from simsd_client.requests import Options, Prompt, Text, generate_request, tokenize_request
from simsd_client.v1 import simsd_pb2
from simsd_client.v1.simsd_pb2_grpc import SimSDServiceStub

CHANNEL_OPTIONS = (("grpc.max_receive_message_length", -1),)
"""An answer with log-probabilities may be larger than gRPC's 4 MB."""


class _Connection:
    """A channel, and what every call carries. `grpc` and `grpc.aio` have functions of the same names for channels."""

    transport: ClassVar[Any] = grpc

    def __init__(
        self,
        target: str,
        api_key: str | None = None,
        *,
        credentials: grpc.ChannelCredentials | None = None,
        timeout_s: float | None = None,
    ) -> None:
        if credentials is None:
            self._channel = self.transport.insecure_channel(target, CHANNEL_OPTIONS)
        else:
            self._channel = self.transport.secure_channel(target, credentials, CHANNEL_OPTIONS)
        self._stub: Any = SimSDServiceStub(self._channel)
        self._metadata = () if api_key is None else (("authorization", f"Bearer {api_key}"),)
        self._timeout_s = timeout_s

    def _start(self, method: str, request: Any, timeout_s: float | None = None) -> Any:
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        return getattr(self._stub, method)(request, timeout=timeout_s, metadata=self._metadata)


class SimSDClient(_Connection):
    """A connection to a server at `target`, as "localhost:9000". It is a context manager, and threads may share it.

    credentials: None for a connection without TLS. timeout_s: timeout of each call in seconds, unless the call has its
    own. Every method raises `CallError` if its call fails.
    """

    def generate(
        self, prompt: Prompt, *, timeout_s: float | None = None, **options: Unpack[Options]
    ) -> simsd_pb2.GenerateResponse:
        """Return the whole answer."""
        return self._call("Generate", generate_request(prompt, options), timeout_s)

    def stream(
        self, prompt: Prompt, *, events: bool = False, timeout_s: float | None = None, **options: Unpack[Options]
    ) -> Iterator[simsd_pb2.GenerateStreamResponse]:
        """Yield the answer as it comes; the first `next` starts the call. Closing the iterator cancels the request."""
        request = simsd_pb2.GenerateStreamRequest(request=generate_request(prompt, options), events=events)
        call = self._start("GenerateStream", request, timeout_s)
        try:
            yield from filter(_says_something, call)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error
        finally:
            call.cancel()

    def tokenize(self, prompt: Text, *, model: str | None = None) -> list[int]:
        """Return the token ids of a text, or of a chat with the model's template."""
        return list(self._call("Tokenize", tokenize_request(prompt, model)).token_ids)

    def models(self) -> list[simsd_pb2.Model]:
        """Return the models that are served."""
        return list(self._call("ListModels", simsd_pb2.ListModelsRequest()).models)

    def close(self) -> None:
        """End all calls and the connection."""
        self._channel.close()

    def __enter__(self) -> "SimSDClient":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _call(self, method: str, request: Any, timeout_s: float | None = None) -> Any:
        try:
            return self._start(method, request, timeout_s)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error


class AsyncSimSDClient(_Connection):
    """`SimSDClient` for asyncio. It is made inside the event loop that uses it. Cancelling a task ends its call."""

    transport = grpc.aio

    async def generate(
        self, prompt: Prompt, *, timeout_s: float | None = None, **options: Unpack[Options]
    ) -> simsd_pb2.GenerateResponse:
        """Return the whole answer."""
        return await self._call("Generate", generate_request(prompt, options), timeout_s)

    async def stream(
        self, prompt: Prompt, *, events: bool = False, timeout_s: float | None = None, **options: Unpack[Options]
    ) -> AsyncIterator[simsd_pb2.GenerateStreamResponse]:
        """Yield the answer as it comes; the first item starts the call. Closing the iterator cancels the request."""
        request = simsd_pb2.GenerateStreamRequest(request=generate_request(prompt, options), events=events)
        call = self._start("GenerateStream", request, timeout_s)
        try:
            async for message in call:
                if _says_something(message):
                    yield message
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error
        finally:
            call.cancel()

    async def tokenize(self, prompt: Text, *, model: str | None = None) -> list[int]:
        """Return the token ids of a text, or of a chat with the model's template."""
        return list((await self._call("Tokenize", tokenize_request(prompt, model))).token_ids)

    async def models(self) -> list[simsd_pb2.Model]:
        """Return the models that are served."""
        return list((await self._call("ListModels", simsd_pb2.ListModelsRequest())).models)

    async def close(self) -> None:
        """End all calls and the connection."""
        await self._channel.close()

    async def __aenter__(self) -> "AsyncSimSDClient":
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def _call(self, method: str, request: Any, timeout_s: float | None = None) -> Any:
        try:
            return await self._start(method, request, timeout_s)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error


def _says_something(message: simsd_pb2.GenerateStreamResponse) -> bool:
    """Return False for the empty last message of a stream that fails, which only carries the status's details."""
    return message.ByteSize() > 0
