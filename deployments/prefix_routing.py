"""Routes a request to the coordinator that has most of its prompt cached, unless that one is much busier.

A router knows which prompts it sent where, not which pages are still cached. A wrong guess only costs a prefill.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from ray.serve._private.request_router import PowerOfTwoChoicesRequestRouter
from ray.serve.request_router import PendingRequest, ReplicaID, RunningReplica

from simsd.messages.request import Request

PAGE_TOKENS = 16
"""Tokens of a page, the unit in which prompts are compared; it is the default page size of a worker."""
MAX_PAGES = 65_536
SLACK = 4
"""How many requests more than the least busy coordinator the one with the cached prefix may have."""

T = TypeVar("T")


class PrefixTable(Generic[T]):
    """The places that pages of prompts were sent to. It keeps the `limit` pages that were seen last."""

    def __init__(self, limit: int = MAX_PAGES) -> None:
        self._limit = limit
        self._places: OrderedDict[int, set[T]] = OrderedDict()

    def note(self, tokens: Sequence[int], place: T) -> None:
        """Note that a prompt was sent to this place."""
        for page in _pages(tokens):
            self._places.setdefault(page, set()).add(place)
            self._places.move_to_end(page)
        while len(self._places) > self._limit:
            self._places.popitem(last=False)

    def longest(self, tokens: Sequence[int], places: Collection[T]) -> set[T]:
        """Return those of `places` that were sent the longest prefix of the prompt, in whole pages.

        The set is empty where none was sent the first page.
        """
        found: set[T] = set()
        left = set(places)
        for page in _pages(tokens):
            left &= self._places.get(page, set())
            if not left:
                break
            found = set(left)
        return found


def _pages(tokens: Sequence[int]) -> Iterator[int]:
    """Yield a hash for each whole page, of all tokens up to the page's end."""
    key = 0
    for first in range(0, len(tokens) - PAGE_TOKENS + 1, PAGE_TOKENS):
        key = hash((key, *tokens[first : first + PAGE_TOKENS]))
        yield key


def preferred(holders: Collection[T], loads: Mapping[T, int]) -> T | None:
    """Return the least busy of `holders`; None if it has over `SLACK` requests more than the least busy of all."""
    best = min(holders, key=lambda place: loads[place], default=None)
    return best if best is not None and loads[best] <= min(loads.values()) + SLACK else None


class PrefixRouter(PowerOfTwoChoicesRequestRouter):
    """Serve's own router, which tries the replica that `preferred` returns before its own two choices.

    Calls are matched in their order of arrival. Serve's routers that match them by the id of the parent call may leave
    some waiting without end, if one parent makes several calls at the same time.
    """

    def initialize_state(self, **kwargs: Any) -> None:
        self._table: PrefixTable[ReplicaID] = PrefixTable()

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Return the groups of replicas to try, best first."""
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
    """Return the token ids of a `generate` call's prompt; none for other calls."""
    first = pending_request.args[0] if pending_request is not None and pending_request.args else None
    return first.prompt_ids if isinstance(first, Request) else []
