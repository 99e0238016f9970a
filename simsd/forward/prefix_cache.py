"""The prefix cache, which finds committed pages by their content.

A page's key is a hash of the key of the page before it and of its own tokens. Attention is block-causal and a page is
whole blocks, so the KV of a page depends only on the tokens up to its end.
"""

import hashlib
from array import array
from collections import OrderedDict


class PrefixCache:
    """Knows which pages may be shared. Pages that no sequence holds are idle, in least-recently-used order."""

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
        """Return the key of a page with `tokens` that comes after the page with the key `previous`."""
        return hashlib.blake2b(previous + array("q", tokens).tobytes(), digest_size=16).digest()

    def match(self, tokens: list[int]) -> list[tuple[int, bytes]]:
        """Return (page, key) of each known page at the beginning of `tokens`, up to the first unknown one."""
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
        """Register a full page, unless another page has the same content, and return the key of the content."""
        key = self.key(previous, tokens)
        if key not in self._page_of:
            self._page_of[key] = page
            self._key_of[page] = key
        return key

    def rest(self, page: int) -> bool:
        """Keep `page`, which no sequence holds any more, for reuse. It returns False if the page is not registered."""
        if page not in self._key_of:
            return False
        self._idle[page] = None
        return True

    def wake(self, page: int) -> None:
        """Note that a sequence holds `page` again."""
        self._idle.pop(page, None)

    def evict(self) -> int:
        """Forget the page that has been idle for longest, and return it."""
        page, _ = self._idle.popitem(last=False)
        del self._page_of[self._key_of.pop(page)]
        return page
