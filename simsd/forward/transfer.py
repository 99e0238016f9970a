"""Transfers between host and device: any number of arrays or tensors take one copy.

If the device is the CPU, nothing is copied, and arrays and tensors share their memory.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ALIGNMENT = 16
"""Every array begins at a multiple of this number of bytes, so that it can be viewed as any type."""

Array = NDArray[Any]

TYPES = {np.int64: torch.int64, np.float32: torch.float32, np.bool_: torch.bool}


class Packing:
    """A layout of arrays of given types and shapes, one after the other in a buffer of `bytes` bytes."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        """Lay out arrays with the types and shapes of `arrays`, whose values do not matter."""
        self._types = [TYPES[array.dtype.type] for array in arrays]
        self._shapes = [array.shape for array in arrays]
        self._sizes = [array.nbytes for array in arrays]
        ends = accumulate((-(-size // ALIGNMENT) * ALIGNMENT for size in self._sizes), initial=0)
        *self._firsts, self.bytes = ends

    def fill(self, buffer: Tensor, arrays: Sequence[Array]) -> None:
        """Write `arrays` into `buffer`, [bytes] uint8 on the host."""
        bytes_of = buffer.numpy()
        for first, size, array in zip(self._firsts, self._sizes, arrays, strict=True):
            bytes_of[first : first + size] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)

    def views(self, buffer: Tensor) -> list[Tensor]:
        """Return the arrays as views of `buffer`, [bytes] uint8 on any device."""
        return [
            buffer[first : first + size].view(dtype).view(shape)
            for first, size, dtype, shape in zip(self._firsts, self._sizes, self._types, self._shapes, strict=True)
        ]

    def host_buffer(self, device: torch.device) -> Tensor:
        """Return a new buffer, [bytes] uint8 on the host. For a GPU it is page-locked, so that copies do not block."""
        return torch.empty(self.bytes, dtype=torch.uint8, pin_memory=device.type == "cuda")


def to_device(arrays: Sequence[Array], device: torch.device) -> list[Tensor]:
    """Return `arrays` as tensors on `device`, with one copy."""
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
    """Copy `arrays` to `device`, call `compute` there with them by name, and copy its result to the host.

    There is one copy each way.
    """
    sent = to_device(list(arrays.values()), device)
    return to_host(compute(dict(zip(arrays, sent, strict=True))))


def to_host(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return `tensors` on the host, with one copy. They must be float32 or int64.

    Integers travel as the bits of float32 numbers, so that one kernel can put all of them together.
    """
    if all(tensor.device.type == "cpu" for tensor in tensors.values()):
        return dict(tensors)
    assert all(tensor.dtype in (torch.float32, torch.int64) for tensor in tensors.values())
    flat = [tensor.flatten().view(torch.float32) for tensor in tensors.values()]
    parts = torch.cat(flat).cpu().split([len(each) for each in flat])
    return {
        name: part.clone().view(tensor.dtype).view(tensor.shape)
        for (name, tensor), part in zip(tensors.items(), parts, strict=True)
    }
