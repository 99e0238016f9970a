"""Fewer messages for a stream: each one costs every process on its way."""

from collections.abc import AsyncGenerator, Callable

from simsd.errors import SimSDError
from simsd.messages.request import Output


async def gather(
    outputs: AsyncGenerator[Output, None], interval: int, see: Callable[[Output], None]
) -> AsyncGenerator[Output, None]:
    """The same outputs with at least `interval` tokens in each; 1: as they are, 0: all in one.

    The first and the last go at once, and who asked for events gets each as it comes. see: told of each output. What
    was held back goes before an error.
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
            at_once = first or interval == 1 or bool(held.events)
            if held.finish_reason is not None or (interval and (at_once or len(held.token_ids) >= interval)):
                yield held
                held, first = None, False
    except SimSDError:
        if held is not None and interval:
            yield held
        raise
