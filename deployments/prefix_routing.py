"""Which coordinator answers a request: the one that has most of its prompt cached, unless it is much busier.

A router knows what it sent where, not what a pool still holds; a wrong guess costs a prefill, no more.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from ray.serve._private.request_router import PowerOfTwoChoicesRequestRouter
from ray.serve.request_router import PendingRequest, ReplicaID, RunningReplica

from simsd.messages.request import Request

PAGE_TOKENS = 16
"""How finely prompts are told apart; a worker's page, by default."""
MAX_PAGES = 65_536
SLACK = 4
"""How many more requests than the least busy coordinator the one with the prefix may have."""

T = TypeVar("T")


class PrefixTable(Generic[T]):
    """Places that pages of prompts were sent to; of `limit` pages, those seen last."""

    def __init__(self, limit: int = MAX_PAGES) -> None:
        self._limit = limit
        self._places: OrderedDict[int, set[T]] = OrderedDict()

    def note(self, tokens: Sequence[int], place: T) -> None:
        """A prompt went there."""
        for page in _pages(tokens):
            self._places.setdefault(page, set()).add(place)
            self._places.move_to_end(page)
        while len(self._places) > self._limit:
            self._places.popitem(last=False)

    def longest(self, tokens: Sequence[int], places: Collection[T]) -> set[T]:
        """Of `places` those that saw the longest prefix of the prompt, in whole pages; none where no page was seen."""
        found: set[T] = set()
        left = set(places)
        for page in _pages(tokens):
            left &= self._places.get(page, set())
            if not left:
                break
            found = set(left)
        return found


def _pages(tokens: Sequence[int]) -> Iterator[int]:
    """A number for each whole page, which stands for all tokens up to its end."""
    key = 0
    for first in range(0, len(tokens) - PAGE_TOKENS + 1, PAGE_TOKENS):
        key = hash((key, *tokens[first : first + PAGE_TOKENS]))
        yield key


def preferred(holders: Collection[T], loads: Mapping[T, int]) -> T | None:
    """The least busy of `holders`, unless it has more than `SLACK` requests above the least busy of all."""
    best = min(holders, key=lambda place: loads[place], default=None)
    return best if best is not None and loads[best] <= min(loads.values()) + SLACK else None


class PrefixRouter(PowerOfTwoChoicesRequestRouter):
    """Serve's own router, and before its two choices the replica that `preferred` gives.

    Requests keep their order: Serve's routers that match calls by their parent's id strand some of those that one
    parent makes at the same time.
    """

    def initialize_state(self, **kwargs: Any) -> None:
        self._table: PrefixTable[ReplicaID] = PrefixTable()

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Ranks of replicas to try, best first."""
        ranks = await super().choose_replicas(candidate_replicas, pending_request)
        prompt = _prompt(pending_request)
        if len(candidate_replicas) < 2 or not prompt:
            return ranks
        by_id = {replica.replica_id: replica for replica in candidate_replicas}
        loads = {replica: self.replica_queue_len_cache.get(replica) or 0 for replica in by_id}
        best = preferred(self._table.longest(prompt, by_id), loads)
        return ranks if best is None else [[by_id[best]], *ranks]

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        self._table.note(_prompt(pending_request), replica_id)


def _prompt(pending_request: PendingRequest | None) -> list[int]:
    """Token ids of a `generate` call; none of any other."""
    first = pending_request.args[0] if pending_request is not None and pending_request.args else None
    return first.prompt_ids if isinstance(first, Request) else []
