"""Gathers a stream's outputs into fewer messages, since each message costs time in every process on its way."""

from collections.abc import AsyncGenerator, Callable

from simsd.errors import SimSDError
from simsd.messages.request import Output


async def gather(
    outputs: AsyncGenerator[Output, None], interval: int, see: Callable[[Output], None]
) -> AsyncGenerator[Output, None]:
    """Yield the outputs merged, with at least `interval` tokens in each. 1 merges nothing, 0 makes one output of all.

    Unless `interval` is 0, the first output and outputs with events are not held back, and what is held goes out before
    an error. `see` is called with each output as it arrives.
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
