"""A device that is not there: its tensors compute on the CPU but keep the rules of an accelerator, and are counted.

Inside `with StandIn() as device:` whatever is made on or moved to `device.name` is a `DeviceTensor`. An operation that
mixes such tensors with the host's raises, as on CUDA; only zero-dimensional host tensors pass, as kernel arguments.
`device.counting()` counts what a real device would be asked for:

* copies to the device: `.to(device)`, `torch.tensor(values, device=...)`, `copy_` from the host, a list as an index;
* copies back, for each of which the host waits: `.to("cpu")`, `.tolist()`, `.item()`, `bool(tensor)`, and what has to
  know the size of its own result, such as `nonzero`, `masked_select` and an index that is a mask;
* launches: every operation that computes or moves data on the device, one each. Views, empty tensors and metadata are
  free. Fused attention and RMS norm are one launch, as on CUDA.

The device is torch's PrivateUse1 with a guard written in Python (`torch._C._acc`, as
`torch.utils.backend_registration` does it). A mode is of one thread: what other threads or processes do is not seen.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, wraps
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

NAME = "privateuseone"

aten = torch.ops.aten

FREE = {
    aten.alias.default,
    aten.detach.default,
    aten.lift_fresh.default,
    aten._unsafe_view.default,
    aten.empty.memory_format,
    aten.empty_strided.default,
    aten.empty_like.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
}
"""Operations that are no view by their schema but launch nothing either."""

WAITING = {
    aten._local_scalar_dense.default: 0,
    aten.equal.default: 1,
    aten.nonzero.default: 1,
    aten.masked_select.default: 1,
    aten.repeat_interleave.Tensor: 1,
    aten._unique2.default: 1,
}
"""Operations that read a value on the host, and their launches."""

FUSED = {F.scaled_dot_product_attention, F.rms_norm, torch.rms_norm}
"""Functions that are one kernel on CUDA, though torch would take them apart for a device that it does not know."""

FROM_VALUES = {torch.tensor, torch.as_tensor, torch.asarray}


@dataclass(slots=True)
class Counts:
    """Copies to the device and back, launches inside and outside the watched models, and the models' forwards.

    `outside_by_name` has the launches outside by operation, `to_device` and `to_host` the copies.
    """

    to_device: int = 0
    to_host: int = 0
    inside: int = 0
    outside: int = 0
    forwards: int = 0
    outside_by_name: Counter[str] = field(default_factory=Counter)


class DeviceTensor(Tensor):
    """A tensor that says it lies on the stand-in device; `host` has its values and shares its strides."""

    host: Tensor

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, host: Tensor) -> "DeviceTensor":
        # In inference mode torch expects a view to be of the same kind as its base, which may be older than the mode.
        with torch.inference_mode(False):
            tensor: DeviceTensor = torch.Tensor._make_wrapper_subclass(
                cls,
                host.size(),
                strides=host.stride(),
                storage_offset=host.storage_offset(),
                dtype=host.dtype,
                device=f"{NAME}:0",
            )
        tensor.host = host
        return tensor

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func}: a tensor of the stand-in device is used outside its `with StandIn()`")

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"DeviceTensor({self.host})"


class StandIn:
    """The device while it is entered. `name` is what `WorkerConfig.device` and torch take."""

    name = NAME

    def __init__(self) -> None:
        self.counts = Counts()
        self._depth = 0
        self._modes = ExitStack()

    def __enter__(self) -> "StandIn":
        _register()
        self._modes.enter_context(_Functions(self))
        self._modes.enter_context(_Operations(self))
        return self

    def __exit__(self, *exception: object) -> None:
        self._modes.close()

    @contextmanager
    def counting(self) -> Iterator[Counts]:
        """What happens inside is counted from zero, for the caller alone."""
        before, self.counts = self.counts, Counts()
        try:
            yield self.counts
        finally:
            self.counts = before

    def watch(self, model: Any) -> None:
        """Launches during this model's `forward` and `logits` are inside the model; its forwards are counted."""
        model.forward = self._inside(model.forward, forwards=1)
        model.logits = self._inside(model.logits, forwards=0)

    def _inside(self, method: Callable[..., Any], forwards: int) -> Callable[..., Any]:
        @wraps(method)
        def watched(*args: Any, **kwargs: Any) -> Any:
            self.counts.forwards += forwards
            self._depth += 1
            try:
                return method(*args, **kwargs)
            finally:
                self._depth -= 1

        return watched

    def launched(self, name: str, launches: int = 1) -> None:
        """Count launches of the operation of this name, inside or outside as it is now."""
        if self._depth:
            self.counts.inside += launches
        elif launches:
            self.counts.outside += launches
            self.counts.outside_by_name[name] += launches

    def run(self, func: Callable[..., Any], args: Any, kwargs: Any, made_here: bool = False) -> Any:
        """Run `func` on the host's tensors inside those of the device; what is new of its results is the device's.

        made_here: whether `func` makes a tensor on the device though none is among its arguments.
        """
        given = _tensors(args, kwargs)
        ours = {id(leaf.host): leaf for leaf in given if isinstance(leaf, DeviceTensor)}
        if ours and any(not isinstance(leaf, DeviceTensor) and leaf.ndim for leaf in given):
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, {NAME}:0 and cpu! "
                f"({func})"
            )
        result = func(*_map(_host, args), **_map(_host, kwargs))
        if not ours and not made_here:
            return result
        return _map(lambda leaf: ours[id(leaf)] if id(leaf) in ours else _on_device(leaf), result)


class _Operations(TorchDispatchMode):
    """Every operation that reaches a device, taken apart as far as torch takes it apart itself."""

    def __init__(self, device: StandIn) -> None:
        super().__init__()
        self.device = device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # In inference mode an operation arrives whole.
        if _is_composite(func):
            with self:
                return func.decompose(*args, **kwargs)
        ours = any(isinstance(tensor, DeviceTensor) for tensor in _tensors(args, kwargs))
        target = kwargs.get("device")
        made_here = is_stand_in(target)
        if made_here:
            kwargs = kwargs | {"device": "cpu"}
        if not ours and not made_here:
            return func(*args, **kwargs)
        if func is aten._to_copy.default and (target is not None and made_here != ours):
            return self._copy_over(func, args, kwargs, to_device=made_here)
        if func is aten.copy_.default and isinstance(args[0], DeviceTensor) != isinstance(args[1], DeviceTensor):
            if isinstance(args[0], DeviceTensor) and args[1].ndim == 0 and args[0].ndim:
                self.device.launched("expand")
            self._copy_over(func, args, kwargs, to_device=isinstance(args[0], DeviceTensor))
            return args[0]
        if torch.Tag.inplace_view in func.tags:
            raise NotImplementedError(f"{func}: the stand-in device cannot change a tensor's shape in place")
        self._count(func, args)
        return self.device.run(func, args, kwargs, made_here)

    def _copy_over(self, func: Any, args: Any, kwargs: Any, to_device: bool) -> Any:
        source = args[0] if func is aten._to_copy.default else args[1]
        if source.numel():
            self.device.counts.to_device += to_device
            self.device.counts.to_host += not to_device
            if not to_device and not source.is_contiguous():  # gathered on the device, then copied in one piece
                self.device.launched("contiguous")
        result = func(*_map(_host, args), **_map(_host, kwargs))
        return DeviceTensor(result) if to_device else result

    def _count(self, func: Any, args: Any) -> None:
        name = func.name().removeprefix("aten::")
        if func in WAITING:
            self.device.counts.to_host += 1
            self.device.launched(name, WAITING[func])
        elif not (func.is_view or func in FREE):
            self.device.launched(name)
        if func in (aten.index.Tensor, aten.index_put.default, aten.index_put_.default):
            masks = [index for index in args[1] if index is not None and index.dtype in (torch.bool, torch.uint8)]
            # A single value from the host is filled in where the mask is, whatever the size.
            filled = func is not aten.index.Tensor and args[2].numel() == 1 and not isinstance(args[2], DeviceTensor)
            self.device.counts.to_host += 0 if filled else len(masks)
            self.device.launched("nonzero", 0 if filled else len(masks))


class _Functions(TorchFunctionMode):
    """What torch does in its Python bindings, before an operation is dispatched."""

    def __init__(self, device: StandIn) -> None:
        super().__init__()
        self.device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("pin_memory"):  # pinned memory is the host's, and here like any other
            del kwargs["pin_memory"]
        if func is Tensor.pin_memory:
            return args[0]
        if func in FROM_VALUES and is_stand_in(kwargs.get("device")):
            made = func(*args, **kwargs | {"device": "cpu"})
            return made.to(self.device.name)
        on_device = any(isinstance(tensor, DeviceTensor) for tensor in _tensors(args, kwargs))
        if not on_device:
            return func(*args, **kwargs)
        if func is Tensor.tolist:
            return args[0].cpu().tolist()
        if func in (Tensor.numpy, Tensor.__array__):
            raise TypeError(f"can't convert {NAME}:0 device type tensor to numpy. Use Tensor.cpu() first.")
        if func in (Tensor.__getitem__, Tensor.__setitem__):
            return func(args[0], self._index(args[1]), *args[2:])
        if func in FUSED:
            self.device.launched(func.__name__)
            with torch._C.DisableTorchFunction():
                return self.device.run(func, args, kwargs)
        return func(*args, **kwargs)

    def _index(self, index: Any) -> Any:
        """With lists and tensors of the host brought to the device, as torch does for CUDA."""
        if isinstance(index, tuple):
            return tuple(self._index(each) for each in index)
        if isinstance(index, list):
            index = torch.tensor(index)
        if isinstance(index, Tensor) and not isinstance(index, DeviceTensor) and index.ndim:
            return index.to(self.device.name)
        return index


def is_stand_in(device: Any) -> bool:
    """Whether this, a device, a name of one or None, is the stand-in."""
    return device is not None and torch.device(device).type == NAME


@cache
def _is_composite(func: Any) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


def _map(change: Callable[[Any], Any], value: Any) -> Any:
    """`change` of all that is in lists, tuples and dicts; much faster than torch's `tree_map`."""
    if isinstance(value, list | tuple):
        return type(value)([_map(change, each) for each in value])
    if isinstance(value, dict):
        return {key: _map(change, each) for key, each in value.items()}
    return change(value)


def _tensors(*values: Any) -> list[Tensor]:
    """Those in lists, tuples and dicts."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _tensors(*value)
        elif isinstance(value, dict):
            found += _tensors(*value.values())
    return found


def _host(leaf: Any) -> Any:
    return leaf.host if isinstance(leaf, DeviceTensor) else leaf


def _on_device(leaf: Any) -> Any:
    return DeviceTensor(leaf) if isinstance(leaf, Tensor) else leaf


class _Guard(torch._C._acc.DeviceGuard):
    def type_(self) -> Any:
        return torch._C._autograd.DeviceType.PrivateUse1


@cache
def _register() -> tuple[_Guard, ModuleType]:
    """Tell torch that the device exists, once in a process; torch keeps no reference to either."""
    module, guard = ModuleType(NAME), _Guard()
    seeding = {"_is_in_bad_fork": lambda: False, "manual_seed_all": lambda seed: None}
    module.__dict__.update(_lazy_init=lambda: None, is_available=lambda: True, **seeding)
    torch._register_device_module(NAME, module)
    torch._C._acc.register_python_privateuseone_device_guard(guard)
    return guard, module
