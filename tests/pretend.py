"""A device that is not the CPU, where there is no GPU: ``pretend`` (torch's ``privateuseone``), in the CPU's memory.

Its tensors are plain strided tensors with autograd, storages and checkpoints of their own device. As on a GPU, tensors
of the CPU and of the device do not mix, a device tensor has no ``.numpy()``, and the host waits where it wants to know
a number, which is counted by the rules of CUDA.

Registering a device changes the whole process, so the tests marked ``gpu`` run in one of their own, see
:func:`in_another_process` and the hook in ``conftest.py``. The API behind it is experimental: if torch changes it,
those tests are skipped with a reason.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import traceback
import warnings
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, TimeoutError
from types import SimpleNamespace
from typing import Any

import processes
import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

NAME = "pretend"
_CPU, _EXTENSION = 1, 12  # kinds of device in DLPack; torch reads the second as its ``privateuseone``


WAITS: list[str] = []
"""Where the host waited for the device: a number came from it, or a copy to it blocked, after which CUDA waits."""


def to_device(tensor: Tensor) -> Tensor:
    """A tensor of the device on the memory of one of the CPU."""
    return _moved(tensor, _EXTENSION)


def to_host(tensor: Tensor) -> Tensor:
    """A tensor of the CPU on the memory of one of the device."""
    return _moved(tensor, _CPU)


def _moved(tensor: Tensor, kind: int) -> Tensor:
    capsule = torch._C._to_dlpack(tensor.detach() if tensor.requires_grad else tensor)
    at = _pointer(capsule, b"dltensor")
    ctypes.c_int32.from_address(at + 8).value = kind  # behind the pointer to the data
    return torch._C._from_dlpack(capsule)


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _replace(tensor: Tensor, host: Tensor) -> None:
    """Let a tensor of the device have the memory and shape of another one of the CPU."""
    with torch.inference_mode(tensor.is_inference()):
        tensor.data = to_device(host)


def _on_device(value: Any) -> bool:
    return isinstance(value, Tensor) and value.device.type == NAME


def _where() -> str:
    """The line of the package that is at work now."""
    lines = [f"{each.filename}:{each.lineno}" for each in traceback.extract_stack(limit=80)]
    return next((line for line in reversed(lines) if "/torchperc/" in line), "")


def _compute(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Any operation of the device, on the CPU."""
    tensors = [value for value in pytree.tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
    on_device = any(map(_on_device, tensors))
    if on_device and any(not _on_device(tensor) and tensor.dim() for tensor in tensors):
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {NAME}:0 and cpu! "
            f"(when checking argument in method {op})"
        )
    here: dict[int, tuple[Tensor, Tensor]] = {}

    def on_host(value: Any) -> Any:
        if isinstance(value, torch.device):
            return torch.device("cpu")
        if not _on_device(value):
            return value
        if id(value) not in here:
            # an empty one may be there to be resized, which memory of another device cannot be
            fresh = not value.numel() and torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
            here[id(value)] = value, to_host(value) if fresh is False else fresh
        return here[id(value)][1]

    _count(op, args)
    # mask & True: the flag came as a tensor, and not every operation would take it for one again
    wanted = {at for at, each in enumerate(op._schema.arguments) if str(each.type) == "Tensor"}
    args = tuple(
        torch.tensor(each) if at in wanted and isinstance(each, bool) else each for at, each in enumerate(args)
    )
    found = op(*pytree.tree_map(on_host, args), **pytree.tree_map(on_host, kwargs))
    written = {id(host): value for value, host in here.values()}
    for value, host in here.values():
        if value.shape != host.shape or value.stride() != host.stride():  # as after squeeze_
            _replace(value, host)

    def back(value: Any) -> Any:
        return written.get(id(value)) if id(value) in written else to_device(value)

    # a view of a tensor that was made outside inference mode is none of that mode's tensors
    inference = torch.is_inference_mode_enabled() and not (_views(op) and not args[0].is_inference())
    with torch.inference_mode(inference):
        return pytree.tree_map_only(Tensor, back, found)


@functools.cache
def _views(op: Any) -> bool:
    return any(each.alias_info is not None and not each.alias_info.is_write for each in op._schema.returns)


def _count(op: Any, args: tuple[Any, ...]) -> None:
    size_depends = torch.Tag.dynamic_output_shape in op.tags
    if size_depends and op._schema.name in ("aten::index", "aten::index_put", "aten::index_put_"):
        size_depends = any(isinstance(each, Tensor) and each.dtype in (torch.bool, torch.uint8) for each in args[1])
    if size_depends or torch.Tag.data_dependent_output in op.tags:
        WAITS.append(f"{op} at {_where()}")


def _copy(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    if not _on_device(target) or not (_on_device(source) or non_blocking):
        WAITS.append(f"copy of {tuple(source.shape)} at {_where()}")
    there, here = (to_host(tensor) if _on_device(tensor) else tensor for tensor in (target, source))
    there.copy_(here)
    return target


def _resized(tensor: Tensor, size: list[int], memory_format: Any = None) -> Tensor:
    if list(tensor.shape) != list(size):
        _replace(tensor, torch.empty(size, dtype=tensor.dtype))
    return tensor


def _set_storage(tensor: Tensor, source: Any, offset: int = 0, size: Any = None, stride: Any = ()) -> Tensor:
    """The numbers of a storage, as they are needed when one is saved or loaded; not the storage itself."""
    address = (ctypes.c_char * source.nbytes()).from_address(source.data_ptr()) if source.nbytes() else b""
    memory = torch.frombuffer(bytearray(address), dtype=tensor.dtype) if address else torch.empty(0, dtype=tensor.dtype)
    _replace(tensor, memory if size is None else memory.as_strided(size, stride, offset))
    return tensor


_MODULE = SimpleNamespace(  # what torch asks of ``torch.pretend``; random numbers come from the CPU's generator
    is_initialized=lambda: True,
    is_available=lambda: True,
    current_device=lambda: 0,
    device_count=lambda: 1,
    manual_seed_all=lambda seed: None,
    _is_in_bad_fork=lambda: False,
    get_amp_supported_dtype=lambda: [torch.float16, torch.bfloat16],
)
_LIBRARIES: list[torch.library.Library] = []  # which take their kernels with them when they go


def register() -> None:
    """Make ``torch.device("pretend")`` work in this process, from now on; before its first backward pass."""
    if _LIBRARIES:
        return
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend(NAME, _MODULE)
    everything, aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    everything.fallback(_compute, "PrivateUse1")
    for name, kernel in {
        "_copy_from": _copy,
        "resize_": _resized,
        "set_.source_Storage": _set_storage,
        "set_.source_Storage_storage_offset": _set_storage,
    }.items():
        aten.impl(name, kernel, "PrivateUse1")
    _LIBRARIES.extend((everything, aten))
    torch.serialization.register_package(
        1,
        lambda storage: f"{NAME}:0" if storage.device.type == NAME else None,
        lambda storage, location: _stored(storage) if location.startswith(NAME) else None,
    )
    assert torch.ones(2, device=NAME).add(1).sum().item() == 4


def _stored(storage: Any) -> Any:
    return to_device(torch.empty(0, dtype=torch.uint8).set_(storage)).untyped_storage()


def register_with_lightning() -> None:
    """Make ``pl.Trainer(accelerator="gpu")`` train on it."""
    from pytorch_lightning.accelerators import AcceleratorRegistry, CUDAAccelerator

    AcceleratorRegistry.register("cuda", _accelerator(), override=True)
    CUDAAccelerator.is_available = staticmethod(lambda: True)  # by which "gpu" and "auto" find it


def _accelerator() -> type:
    from pytorch_lightning.accelerators import CUDAAccelerator

    class PretendAccelerator(CUDAAccelerator):  # of which Lightning knows that its device is not the CPU
        setup_device = teardown = lambda *_: None
        parse_devices = staticmethod(lambda devices: [0])
        get_parallel_devices = staticmethod(lambda devices: [torch.device(NAME, 0)])
        auto_device_count = staticmethod(lambda: 1)
        is_available = staticmethod(lambda: True)

    return PretendAccelerator


@functools.cache
def _other_process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, processes.context(), os.chdir, (os.getcwd(),))


def in_another_process(item: pytest.Function, timeout: float = 120) -> None:
    """Run a test in a process in which the device is registered: one for all of them."""
    marks = [mark.args[0] for mark in item.iter_markers("filterwarnings")]
    filters = [*item.config.getini("filterwarnings"), *reversed(marks)]
    arguments = {name: item.funcargs[name] for name in item._fixtureinfo.argnames}
    pool, about = _other_process(), (item.function.__module__, item.function.__name__, arguments, filters)
    try:
        kind, said = pool.submit(_answer, *about).result(timeout)
    except (TimeoutError, BrokenExecutor) as error:
        for process in (pool._processes or {}).values():
            process.kill()
        _other_process.cache_clear()
        kind, said = "failed", f"no answer from the pretend device in {timeout} s, or its process has ended: {error!r}"
    if kind == "skipped":
        pytest.skip(said)
    if kind == "failed":
        pytest.fail(said, pytrace=False)


@functools.cache
def _obstacle() -> str | None:
    torch.set_num_threads(1)
    try:
        register()
        register_with_lightning()
    except Exception as error:
        return f"this torch has another API for devices made in Python: {type(error).__name__}: {error}"
    return None


def _answer(module: str, name: str, arguments: dict[str, Any], filters: list[str]) -> tuple[str, str]:
    from _pytest.config import parse_warning_filter

    if obstacle := _obstacle():
        return "skipped", obstacle
    try:
        torch.default_generator.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for text in filters:
                warnings.filterwarnings(*parse_warning_filter(text, escape=False))
            getattr(importlib.import_module(module), name)(**arguments)
    except pytest.skip.Exception as skipped:
        return "skipped", str(skipped)
    except BaseException:
        return "failed", traceback.format_exc()
    return "passed", ""
