"""Committed pages by content. A page's key chains the key of the page before it with its own tokens.

Attention is block-causal and a page is whole blocks, so a page's KV depends on the tokens up to its end and nothing
else.
"""

import hashlib
from array import array
from collections import OrderedDict


class PrefixCache:
    """Knows which pages may be shared; those that no sequence holds rest in least-recently-used order."""

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self._page_of: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def idle_pages(self) -> int:
        return len(self._idle)

    def idle(self) -> list[int]:
        return list(self._idle)

    def key(self, previous: bytes, tokens: list[int]) -> bytes:
        return hashlib.blake2b(previous + array("q", tokens).tobytes(), digest_size=16).digest()

    def match(self, tokens: list[int]) -> list[tuple[int, bytes]]:
        """(page, key) of the longest run of known whole pages that `tokens` begins with."""
        found: list[tuple[int, bytes]] = []
        key = b""
        for start in range(0, len(tokens) - self.page_size + 1, self.page_size):
            key = self.key(key, tokens[start : start + self.page_size])
            page = self._page_of.get(key)
            if page is None:
                break
            found.append((page, key))
        return found

    def add(self, page: int, previous: bytes, tokens: list[int]) -> bytes:
        """Register a full page; a second page of the same content stays private. Returns the content's key."""
        key = self.key(previous, tokens)
        if key not in self._page_of:
            self._page_of[key] = page
            self._key_of[page] = key
        return key

    def rest(self, page: int) -> bool:
        """Nobody holds `page` any more: keep it for reuse. False if it was never registered."""
        if page not in self._key_of:
            return False
        self._idle[page] = None
        return True

    def wake(self, page: int) -> None:
        """`page` is held again."""
        self._idle.pop(page, None)

    def evict(self) -> int:
        """Forget the page that rested longest and return it."""
        page, _ = self._idle.popitem(last=False)
        del self._page_of[self._key_of.pop(page)]
        return page
