"""Fewer messages for a stream: each one costs every process on its way."""

from collections.abc import AsyncGenerator, Callable

from simsd.errors import SimSDError
from simsd.types import Output


async def gather(
    outputs: AsyncGenerator[Output, None], interval: int, see: Callable[[Output], None]
) -> AsyncGenerator[Output, None]:
    """The same outputs with at least `interval` tokens in each, the first and the last apart; 0: all in one.

    see: told of each as it comes. What was held back goes before an error.
    """
    held: Output | None = None
    first = True
    try:
        async for output in outputs:
            see(output)
            if held is None:
                held = output
            else:
                held.add(output)
            if held.finish_reason is not None or (interval and (first or len(held.token_ids) >= interval)):
                yield held
                held, first = None, False
    except SimSDError:
        if held is not None and interval:
            yield held
        raise
