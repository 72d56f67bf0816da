"""Run Triton kernels on a CPU, program by program, in torch operations: to test their mathematics without a GPU.

Covers what our kernels use. Nothing is compiled, so it says nothing about speed, registers or precision of products.
"""

from __future__ import annotations

import inspect
import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from acenode.accelerate.triton_support import kernels_available
from acenode.backend import ACCELERATED

# modules that import Triton
KERNELS = ("triton", "acenode.accelerate.cuda_graph.field_kernels", "acenode.accelerate.cuda_graph.step_kernels",
           "acenode.accelerate.gru_ode_bayes.kernels", "acenode.accelerate.recurrence.kernels",
           "acenode.accelerate.triton_math")
program: list[int] = [0, 0, 0]  # the indices of the running program
grid_size: list[int] = [1, 1, 1]


@dataclass(frozen=True)
class Pointer:
    """An address, or a tensor of addresses, in the memory of a tensor."""

    memory: Tensor  # one-dimensional
    at: Any

    def __add__(self, offset: Any) -> Pointer:
        return Pointer(self.memory, self.at + offset)


class Kernel:
    """What `triton.jit` returns: call it from another kernel, or launch it as kernel[grid](…)."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.names = function, set(inspect.signature(function).parameters)

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*args: Any, **kwargs: Any) -> None:
            pointers = [_pointer(x) for x in args]
            constants = {k: v for k, v in kwargs.items() if k in self.names}
            grid_size[:] = (*grid, 1, 1)[:3]
            for indices in itertools.product(*map(range, grid)):
                program[:] = (*indices, 0, 0)[:3]
                self.function(*pointers, **constants)

        return launch


def _pointer(x: Any) -> Any:
    """Return tensors, also those of a tuple, as pointers, and anything else as it is."""
    if isinstance(x, tuple):
        return tuple(map(_pointer, x))
    if not isinstance(x, Tensor):
        return x
    memory = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())  # type: ignore[call-overload]
    return Pointer(memory, x.storage_offset())


def load(pointer: Pointer, mask: Tensor | None = None, other: float = 0.0) -> Tensor:
    at = torch.as_tensor(pointer.at)
    if mask is None:
        return pointer.memory[at].clone()
    at, mask = torch.broadcast_tensors(at, mask)
    found = torch.full(at.shape, other, dtype=pointer.memory.dtype)
    found[mask] = pointer.memory[at[mask]]
    return found


def store(pointer: Pointer, value: Tensor, mask: Tensor | None = None) -> None:
    at = torch.as_tensor(pointer.at)
    value = value.expand(at.shape)
    known = torch.ones((), dtype=torch.bool) if mask is None else mask
    known = known.expand(at.shape)
    pointer.memory[at[known]] = value[known].to(pointer.memory.dtype)


def where(condition: Tensor, x: Any, y: Any) -> Any:
    """Do what `triton.language.where` does, also for pointers with a condition of one value."""
    if isinstance(x, Pointer):
        return x if condition else y
    return torch.where(torch.as_tensor(condition), x, y)


def jit(function: Callable[..., Any] | None = None, **_: Any) -> Any:
    """Do what `triton.jit` does, with or without options."""
    return Kernel if function is None else Kernel(function)


def language() -> ModuleType:
    made = ModuleType("triton.language")
    functions = {
        "constexpr": lambda x: x, "int64": torch.int64, "int32": torch.int32, "float32": torch.float64,
        "float64": torch.float64,
        "PropagateNan": SimpleNamespace(ALL=True), "program_id": lambda axis: torch.tensor(program[axis]),
        "arange": torch.arange, "static_range": range,
        "num_programs": lambda axis: grid_size[axis], "zeros_like": torch.zeros_like, "log": torch.log,
        "minimum": lambda x, most, propagate_nan=None: torch.clamp(torch.as_tensor(x), max=most),
        "load": load, "store": store, "where": where, "sqrt": torch.sqrt,
        "sigmoid": torch.sigmoid, "exp": torch.exp, "reshape": torch.reshape,
        "max": lambda x, axis: x.amax(axis), "trans": torch.t, "abs": torch.abs,
        "broadcast_to": lambda x, shape: x.expand(shape),
        "zeros": lambda shape, dtype: torch.zeros(shape, dtype=dtype),
        "sum": lambda x, axis=None: x.sum() if axis is None else x.sum(axis),
        "maximum": lambda x, least, propagate_nan=None: torch.clamp(torch.as_tensor(x), min=least),
        "debug_barrier": lambda: None, "dot": lambda a, b, acc=0, input_precision=None: a @ b + acc}
    for name, value in functions.items():
        setattr(made, name, value)
    return made


@contextmanager
def triton_on_cpu() -> Iterator[None]:
    """Import kernels with this implementation of Triton inside the block, and forget them after it."""
    mine, extra = ModuleType("triton"), ModuleType("triton.language.extra")
    extra.libdevice = SimpleNamespace(tanh=torch.tanh, log1p=torch.log1p)  # type: ignore[attr-defined]
    attributes = {"jit": jit, "cdiv": lambda a, b: -(-a // b), "language": language(),
                  "next_power_of_2": lambda n: 1 << (n - 1).bit_length()}
    for name, value in attributes.items():
        setattr(mine, name, value)
    hidden = _forget()
    sys.modules |= {"triton": mine, "triton.language": attributes["language"], "triton.language.extra": extra}
    try:
        yield
    finally:
        _forget()
        sys.modules.update(hidden)
        for name, module in hidden.items():
            package, _, last = name.rpartition(".")
            if package:
                setattr(sys.modules[package], last, module)


def kernels_on(device: torch.device) -> Any:
    """Run the block with kernels on a GPU, or on the CPU by this implementation."""
    if device.type == "cpu":
        return triton_on_cpu()
    if not kernels_available(ACCELERATED, device):
        pytest.skip("no Triton")
    return nullcontext()


def _forget() -> dict[str, ModuleType]:
    """Remove the loaded modules of Triton and of kernels, so that they are imported again; return them."""
    prefixes = tuple(f"{name}." for name in KERNELS)
    found = {name: sys.modules.pop(name) for name in list(sys.modules) if f"{name}.".startswith(prefixes)}
    for name in found:
        package, _, module = name.rpartition(".")
        if package in sys.modules:
            vars(sys.modules[package]).pop(module, None)
    return found
