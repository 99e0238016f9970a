"""The stand-in device keeps an accelerator's rules and counts right, so that what it says of the workers holds."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.unit.stand_in_device import DeviceTensor, StandIn, is_stand_in


@pytest.fixture(params=[False, True], ids=["normal mode", "inference mode"])
def device(request: pytest.FixtureRequest) -> Iterator[StandIn]:
    with torch.inference_mode(request.param), torch.no_grad(), StandIn() as device:
        yield device


def grid() -> Tensor:
    return torch.arange(12, dtype=torch.float32).view(3, 4)


MAKERS: dict[str, Callable[[str], Tensor]] = {
    "to": lambda name: grid().to(name),
    "to with dtype": lambda name: torch.from_numpy(np.arange(3)).to(device=name, dtype=torch.float32),
    "tensor": lambda name: torch.tensor([1, 2, 3], device=name),
    "as_tensor": lambda name: torch.as_tensor([True, False], device=torch.device(name)),
    "zeros": lambda name: torch.zeros(2, 3, device=name),
    "arange": lambda name: torch.arange(5, device=name),
    "empty": lambda name: torch.empty(2, 0, device=name),
    "like": lambda name: torch.full_like(torch.zeros(2, device=name), 7),
    "new": lambda name: torch.zeros(2, device=name).new_ones(3),
    "empty parameter": lambda name: nn.Linear(3, 2, device="meta").to_empty(device=name).weight.zero_(),
    "parameter": lambda name: nn.Linear(3, 2).to(name).weight,
}


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_what_is_made_on_the_device_lies_there(device: StandIn, maker: Callable[[str], Tensor]) -> None:
    made = maker(device.name)
    assert is_stand_in(made.device) and not made.is_cpu and made.device == torch.ones(1, device=device.name).device
    assert is_stand_in((made.to(torch.float64) + 1).device)
    back = made.cpu()
    assert back.is_cpu and type(back) is not DeviceTensor and back.shape == made.shape and back.dtype == made.dtype


MIXED: dict[str, Callable[[Tensor, Tensor], object]] = {
    "sum": lambda there, here: there + here,
    "product the other way": lambda there, here: here * there,
    "in place": lambda there, here: there.add_(here),
    "matrix product": lambda there, here: F.linear(there, here),
    "cat": lambda there, here: torch.cat((there, here)),
    "where": lambda there, here: torch.where(there > 0, here, there),
    "gather": lambda there, here: there.gather(1, here.long().clamp(max=3)),
    "index_select": lambda there, here: there.index_select(0, here.flatten().long().clamp(max=2)),
    "masked_fill": lambda there, here: there.masked_fill(here > 0, 0.0),
    "attention": lambda there, here: F.scaled_dot_product_attention(there[None], here[None], there[None]),
    "norm": lambda there, here: F.rms_norm(there, (4,), here[0]),
    "out": lambda there, here: torch.add(there, 1, out=here),
}


@pytest.mark.parametrize("mix", MIXED.values(), ids=MIXED)
def test_mixing_devices_raises(device: StandIn, mix: Callable[[Tensor, Tensor], object]) -> None:
    there, here = grid().to(device.name), grid()
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        mix(there, here)
    mix(there, here.to(device.name))


def test_a_number_from_the_host_may_come_as_a_tensor(device: StandIn) -> None:
    there = grid().to(device.name)
    assert torch.equal((there * torch.tensor(2.0)).cpu(), grid() * 2)
    assert torch.equal(torch.where(there > 3, there, torch.tensor(0.5)).cpu(), torch.where(grid() > 3, grid(), 0.5))


def test_other_devices_are_left_alone(device: StandIn) -> None:
    assert torch.empty(3, device="meta").is_meta and torch.zeros(3, device="cpu").is_cpu
    with pytest.raises(RuntimeError, match="same device"):
        grid().to(device.name) + grid().to("meta")


def test_numpy_sees_the_host_only(device: StandIn) -> None:
    there = grid().to(device.name)
    for convert in (there.numpy, lambda: np.asarray(there)):
        with pytest.raises(TypeError, match=r"Use Tensor.cpu\(\) first"):
            convert()
    assert np.array_equal(there.cpu().numpy(), grid().numpy())


def test_outside_of_the_device_its_tensors_are_of_no_use() -> None:
    with StandIn() as device:
        there = grid().to(device.name)
    with pytest.raises(RuntimeError, match="outside its `with StandIn"):
        there + 1


Step = Callable[[Tensor], object]
COUNTED: dict[str, tuple[Step, tuple[int, int, int]]] = {
    # copies to the device, copies back, launches
    "to": (lambda x: grid().to(x.device), (1, 0, 0)),
    "to where it is": (lambda x: x.to(x.device), (0, 0, 0)),
    "nothing to copy": (lambda x: torch.zeros(0, 3).to(x.device), (0, 0, 0)),
    "tensor": (lambda x: torch.tensor([1, 2], device=x.device), (1, 0, 0)),
    "copy_ to": (lambda x: x.copy_(grid()), (1, 0, 0)),
    "copy_ into a part": (lambda x: x[1:].copy_(grid()[1:]), (1, 0, 0)),
    "copy_ back": (lambda x: grid().copy_(x), (0, 1, 0)),
    "copy_ there": (lambda x: x.copy_(x.flip(0)), (0, 0, 2)),
    "cpu": (lambda x: x.cpu(), (0, 1, 0)),
    "to cpu": (lambda x: x.to("cpu", non_blocking=True), (0, 1, 0)),
    "a column back": (lambda x: x[:, 0].cpu(), (0, 1, 1)),
    "tolist": (lambda x: x.tolist(), (0, 1, 0)),
    "item": (lambda x: x[0, 1].item(), (0, 1, 0)),
    "float": (lambda x: float(x[0, 1]), (0, 1, 0)),
    "bool": (lambda x: bool(x[0, 1] > 0), (0, 1, 1)),
    "branch": (lambda x: 1 if (x > 0).any() else 0, (0, 1, 2)),
    "nonzero": (lambda x: (x > 5).nonzero(), (0, 1, 2)),
    "a mask as index": (lambda x: x[x > 5], (0, 1, 3)),
    "put by a mask": (lambda x: x.__setitem__(x > 5, x[0, :1]), (0, 1, 3)),
    "an index": (lambda x: x[torch.zeros(2, dtype=torch.int64, device=x.device)], (0, 0, 2)),
    "a list as index": (lambda x: x[:, [0, 2]], (1, 0, 1)),
    "the host's index": (lambda x: x[torch.tensor([0, 2])], (1, 0, 1)),
    "a number put": (lambda x: x.__setitem__((slice(None), 2), -1.0), (0, 0, 2)),
    "views": (lambda x: x.view(4, 3).t()[1:].unsqueeze(0).expand(2, 2, 4).unbind(0)[0].squeeze(), (0, 0, 0)),
    "reshape that copies": (lambda x: x.t().reshape(12), (0, 0, 1)),
    "reshape that does not": (lambda x: x.reshape(2, 6), (0, 0, 0)),
    "empty": (lambda x: torch.empty_like(x), (0, 0, 0)),
    "zeros": (lambda x: torch.zeros(3, device=x.device), (0, 0, 1)),
    "dtype": (lambda x: x.to(torch.float64), (0, 0, 1)),
    "the same dtype": (lambda x: x.to(torch.float32).float(), (0, 0, 0)),
    "contiguous already": (lambda x: x.contiguous(), (0, 0, 0)),
    "chain": (lambda x: (x * 2 + 1).exp().log_softmax(dim=-1).argmax(dim=-1), (0, 0, 5)),
    "in place": (lambda x: x.mul_(2).clamp_(max=3), (0, 0, 2)),
    "linear": (lambda x: F.linear(x, x), (0, 0, 1)),
    "attention": (lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]), (0, 0, 1)),
    "norm": (lambda x: F.rms_norm(x, (4,), x[0]), (0, 0, 1)),
    "on the host": (lambda x: grid().exp().sum().item(), (0, 0, 0)),
}


@pytest.mark.parametrize(("step", "expected"), COUNTED.values(), ids=COUNTED)
def test_counts(device: StandIn, step: Step, expected: tuple[int, int, int]) -> None:
    there = grid().to(device.name)
    with device.counting() as counts:
        step(there)
    assert (counts.to_device, counts.to_host, counts.outside) == expected
    assert counts.inside == counts.forwards == 0
    assert sum(counts.outside_by_name.values()) == counts.outside


def test_pinned_memory_is_the_hosts(device: StandIn) -> None:
    with device.counting() as counts:
        pinned = torch.empty(12, pin_memory=True).pin_memory()
        assert pinned.is_cpu
        pinned.copy_(grid().view(12))
        there = pinned.to(device.name, non_blocking=True)
    assert (counts.to_device, counts.to_host, counts.outside) == (1, 0, 0)
    assert there.tolist() == list(range(12))


def test_counting_starts_from_zero_each_time(device: StandIn) -> None:
    with device.counting() as first:
        grid().to(device.name)
        with device.counting() as second:
            grid().to(device.name).cpu()
        grid().to(device.name)
    assert (first.to_device, first.to_host) == (2, 0)
    assert (second.to_device, second.to_host) == (1, 1)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(F.silu(self.first(x)))

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden * 2


def test_launches_inside_a_watched_model_are_told_from_those_outside(device: StandIn) -> None:
    model = Model().requires_grad_(False).to(device.name)
    device.watch(model)
    there = grid().to(device.name)
    with device.counting() as counts:
        out = model.logits(model(there + 1)).exp()
    assert (counts.forwards, counts.inside, counts.outside) == (1, 4, 2)
    assert set(counts.outside_by_name) == {"add.Tensor", "exp"}
    assert is_stand_in(out.device)


def test_a_model_that_fails_is_left_all_the_same(device: StandIn) -> None:
    model = Model().requires_grad_(False).to(device.name)
    device.watch(model)
    with pytest.raises(RuntimeError, match="same device"):
        model(grid())
    with device.counting() as counts:
        torch.zeros(2, device=device.name)
    assert (counts.inside, counts.outside) == (0, 1)


def test_results_are_those_of_the_cpu(device: StandIn) -> None:
    logits, keys = torch.randn(5, 9, generator=torch.Generator().manual_seed(0)), torch.arange(5) * 7919 + 3

    def work(x: Tensor, k: Tensor) -> list[Tensor]:
        ordered, order = x.sort(dim=-1, descending=True)
        kept = ordered.masked_fill(ordered.softmax(dim=-1).cumsum(dim=-1) > 0.9, float("-inf")).log_softmax(dim=-1)
        back = torch.empty_like(x).scatter_(1, order, kept)
        best, token = back.max(dim=-1)
        warm = (k % 2 == 0).nonzero().squeeze(1)
        token[warm] = (x[warm] - (k[warm] >> 3).unsqueeze(1)).argmax(dim=-1)
        x = x.clone()
        x[:, 3] = float("-inf")
        x[1:3, [0, 2]] += torch.tensor([1.0, -2.0], device=x.device)
        return [back, best, token, x, *x.topk(3, dim=-1)]

    here, there = work(logits, keys), work(logits.to(device.name), keys.to(device.name))
    for expected, found in zip(here, there, strict=True):
        assert is_stand_in(found.device)
        assert torch.equal(expected, found.cpu()) and not expected.isnan().any()


def test_views_share_memory_with_their_base(device: StandIn) -> None:
    there = torch.zeros(2, 3, device=device.name)
    there[1].fill_(5)
    there.view(6)[0] = 7
    assert there.tolist() == [[7, 0, 0], [5, 5, 5]]
