"""Clients that leave and engines that die."""

import asyncio
import concurrent.futures
import os
import signal
import time
from typing import Any

import httpx
import pytest
import ray
from ray import serve

from deployments.lease import take_lease
from deployments.local import APP_NAME
from simsd.errors import WorkerLostError
from simsd.messages.worker import Role
from tests.serve.cluster import FREED_WITHIN_S, alive, engines, held, kill, pids_of, wait_until
from tests.serve.server.conftest import Server

LONG = "Write a function that adds two numbers and explain every step of it."


def body(index: int, **fields: Any) -> dict[str, Any]:
    """A request that runs for a while, whatever the model thinks of it."""
    messages = [{"role": "user", "content": f"{LONG} Number {index}."}]
    return {"messages": messages, "seed": index, "max_tokens": 400, "ignore_eos": True} | fields


async def drop(url: str, index: int, after_s: float, stream: bool) -> None:
    """Ask, and hang up after some time, wherever the answer is by then."""
    async with httpx.AsyncClient(base_url=url, timeout=30) as client:
        try:
            async with asyncio.timeout(after_s):
                request = client.build_request("POST", "/v1/chat/completions", json=body(index, stream=stream))
                response = await client.send(request, stream=True)
                async for _ in response.aiter_raw():
                    pass
        except TimeoutError:
            return


def test_fifty_clients_that_leave(server: Server) -> None:
    assert set(held().values()) == {(0, 0)}

    async def all_of_them() -> None:
        async with asyncio.TaskGroup() as group, httpx.AsyncClient(base_url=server.url) as client:
            for index in range(50):
                group.create_task(drop(server.url, index, 0.1 + index * 0.03, stream=index % 2 == 0))
            loads = []
            for _ in range(20):
                loads.append((await client.get("/health")).json()["running"])
                await asyncio.sleep(0.1)
            assert max(loads) > 1, "nobody was being served while they left"

    asyncio.run(all_of_them())
    wait_until(lambda: set(held().values()) == {(0, 0)}, FREED_WITHIN_S)
    with server.client() as client:
        assert client.get("/health").json() == {"status": "ok", "running": 0, "waiting": 0}


def stream_text(server: Server, request: dict[str, Any], received: list[str]) -> str:
    """The whole text of a stream; its parts are put into `received` as they come."""
    for chunk in server.openai().chat.completions.create(model="tiny", stream=True, **request):
        received.append(chunk.choices[0].delta.content or "")
    assert chunk.choices[0].finish_reason == "length"
    return "".join(received)


STREAMS: list[dict[str, Any]] = [
    {"messages": body(i)["messages"], "max_tokens": 150, "temperature": 1.0, "seed": i}
    | {"extra_body": {"ignore_eos": True, "simsd": options}}
    for i, options in enumerate(({"method": "simsd"}, {"method": "exact"}, {"method": "simsd", "gamma": 2}))
]


@pytest.fixture(scope="module")
def undisturbed(server: Server) -> list[str]:
    """What the streams say when nothing happens."""
    return [stream_text(server, request, []) for request in STREAMS]


@pytest.mark.parametrize("role", ["target", "draft"])
def test_killed_engine_under_three_streams(server: Server, undisturbed: list[str], role: Role) -> None:
    """The streams go on with a new engine and end with the text they would have had."""
    victim = engines()[role].pid
    received: list[list[str]] = [[], [], []]
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        streams = [pool.submit(stream_text, server, STREAMS[i], received[i]) for i in range(3)]
        wait_until(lambda: all(len(parts) > 5 for parts in received), 20)
        kill(victim)
        assert not any(stream.done() for stream in streams), "the kill came too late to prove anything"
        texts = [stream.result(timeout=90) for stream in streams]
    assert texts == undisturbed
    assert not alive(victim)
    assert engines()[role].pid != victim
    wait_until(lambda: set(held().values()) == {(0, 0)}, FREED_WITHIN_S)


def test_a_lease_that_cannot_be_had_says_so(server: Server) -> None:
    """The one target is lent already; who asks for it waits no longer than it said, and leaves the queue."""

    @ray.remote(num_cpus=0)
    class Holder:
        pass

    async def ask() -> None:
        await take_lease(serve.get_deployment_handle("TargetServer", APP_NAME), "target", holder, 1.0)

    holder = Holder.remote()
    with pytest.raises(WorkerLostError, match=r"no target engine could be leased within 1 s: TargetServer"):
        asyncio.run(ask())
    ray.kill(holder)


def test_killed_coordinator_comes_back(server: Server) -> None:
    """Its leases end with it, though nothing cancels them; the next one gets both engines."""
    before = {role: state.pid for role, state in engines().items()}
    kill(pids_of("ray::ServeReplica:simsd:Coordinator")[0])
    deadline = time.monotonic() + 60
    with server.client() as client:
        while time.monotonic() < deadline:
            response = client.post("/v1/completions", json={"prompt": "Hello", "max_tokens": 4})
            if response.status_code == 200:
                break
            assert response.status_code == 503, response.text
            time.sleep(0.2)
        else:
            pytest.fail("no answer within 60 s")
    assert {role: state.pid for role, state in engines().items()} == before


def test_a_hung_engine_is_replaced(server: Server) -> None:
    """Stopped, not dead: it holds its connections and answers nothing. The stream ends as if nothing had happened."""
    undisturbed = stream_text(server, STREAMS[0], [])
    received: list[str] = []
    victim = engines()["target"].pid
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        stream = pool.submit(stream_text, server, STREAMS[0], received)
        wait_until(lambda: len(received) > 5, 20)
        os.kill(victim, signal.SIGSTOP)
        assert not stream.done(), "the stop came too late to prove anything"
        assert stream.result(120) == undisturbed
    assert not alive(victim)
