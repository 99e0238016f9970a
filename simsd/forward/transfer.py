"""Between host and device: what one side has for the other travels in one copy, whatever it is made of.

On a CPU nothing travels, and arrays and tensors share their memory.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ALIGNMENT = 16
"""Bytes; every array begins at a multiple of it, so that a view of any type may."""

Array = NDArray[Any]


class Packing:
    """Arrays of given types and shapes, one behind the other in a buffer of bytes."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        """Of arrays such as these; their values do not matter."""
        self._types = [torch.from_numpy(np.empty(0, array.dtype)).dtype for array in arrays]
        self._shapes = [array.shape for array in arrays]
        self._sizes = [array.nbytes for array in arrays]
        ends = accumulate((-(-size // ALIGNMENT) * ALIGNMENT for size in self._sizes), initial=0)
        *self._firsts, self.bytes = ends

    def fill(self, buffer: Tensor, arrays: Sequence[Array]) -> None:
        """Write `arrays` into `buffer` [bytes] uint8, which is on the host."""
        bytes_of = buffer.numpy()
        for first, size, array in zip(self._firsts, self._sizes, arrays, strict=True):
            bytes_of[first : first + size] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)

    def views(self, buffer: Tensor) -> list[Tensor]:
        """The arrays as they lie in `buffer` [bytes] uint8, on whatever device it is."""
        return [
            buffer[first : first + size].view(dtype).view(shape)
            for first, size, dtype, shape in zip(self._firsts, self._sizes, self._types, self._shapes, strict=True)
        ]

    def host_buffer(self, device: torch.device) -> Tensor:
        """[bytes] uint8; page-locked where a GPU is to read it, so that the copy need not be waited for."""
        return torch.empty(self.bytes, dtype=torch.uint8, pin_memory=device.type == "cuda")


def to_device(arrays: Sequence[Array], device: torch.device) -> list[Tensor]:
    """`arrays` as tensors on `device`, in one copy."""
    if device.type == "cpu":
        return [torch.from_numpy(array) for array in arrays]
    if not arrays:
        return []
    packing = Packing(arrays)
    buffer = packing.host_buffer(device)
    packing.fill(buffer, arrays)
    return packing.views(buffer.to(device, non_blocking=True))


def there_and_back(
    arrays: Mapping[str, Array], device: torch.device, compute: Callable[[dict[str, Tensor]], dict[str, Tensor]]
) -> dict[str, Tensor]:
    """What `compute` makes on `device` of `arrays`, by their names: on the host, with one copy each way."""
    sent = to_device(list(arrays.values()), device)
    return to_host(compute(dict(zip(arrays, sent, strict=True))))


def to_host(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`tensors` on the host, in one copy. float32, or integers below 2^24, which float32 holds exactly."""
    if all(tensor.device.type == "cpu" for tensor in tensors.values()):
        return dict(tensors)
    assert all(tensor.dtype in (torch.float32, torch.int64) for tensor in tensors.values())
    together = torch.cat([tensor.flatten() for tensor in tensors.values()]).to(torch.float32).cpu()
    parts = together.split([prod(tensor.shape) for tensor in tensors.values()])
    return {
        name: part.view(tensor.shape).to(tensor.dtype)
        for (name, tensor), part in zip(tensors.items(), parts, strict=True)
    }
