"""The process group of torch.distributed: what its processes tell each other."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import lazy_loader

from torchperc._checks import first_line

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist
    from torch import Tensor
else:
    torch, dist = lazy_loader.load("torch"), lazy_loader.load("torch.distributed")

T = TypeVar("T")
_LOST = re.compile(r"gloo/|connectFullMesh|NCCL|Connection (closed|reset|refused)|Broken pipe|[Tt]imed out")


class ProcessError(RuntimeError):
    """Another process has ended or does not answer."""


def is_lost(error: BaseException) -> bool:
    """Return whether an error of torch says that another process has ended or does not answer.

    Example:
        >>> is_lost(RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:1"))
        True
    """
    known = isinstance(error, ProcessError | dist.DistError)
    return known or (isinstance(error, RuntimeError) and _LOST.search(str(error)) is not None)


def lost(error: Exception) -> ProcessError:
    """Return a :class:`ProcessError` that explains which process was lost."""
    if isinstance(error, ProcessError):
        return error
    rank, size = rank_and_size()
    return ProcessError(
        f"process {rank} of {size} lost the others: one of them has ended or did not answer in time "
        f"({first_line(error)}); look at its output, and resume from the last checkpoint"
    )


def rank_and_size() -> tuple[int, int]:
    """Return rank and world size: (0, 1) without a process group."""
    if "torch.distributed" not in sys.modules or not dist.is_available() or not dist.is_initialized():
        return 0, 1
    return dist.get_rank(), dist.get_world_size()


def own_slice(count: int, rank: int, size: int) -> slice:
    """Return the rows of process ``rank`` out of ``size`` if ``count`` rows are cut into contiguous shards.

    Example:
        >>> [own_slice(7, rank, 3) for rank in range(3)]
        [slice(0, 3, None), slice(3, 5, None), slice(5, 7, None)]
    """
    least, extra = divmod(count, size)
    start = rank * least + min(rank, extra)
    return slice(start, start + least + (rank < extra))


def all_reduce(values: Tensor) -> Tensor:
    """Return the sum of a tensor over all processes."""
    return all_stack(values).sum(0)


def all_stack(values: Tensor) -> Tensor:
    """Return the tensors of all processes, of one shape and type, in their order: (processes, …)."""
    size = rank_and_size()[1]
    if size == 1:
        return values[None]
    device = torch.device("cuda") if dist.get_backend() == "nccl" else values.device  # nccl sends from GPUs only
    given = values.detach().to(device).contiguous()
    found = [torch.empty_like(given) for _ in range(size)]
    _ask(dist.all_gather, found, given)
    return torch.stack(found).to(values.device)


def gather(value: T) -> list[T]:
    """Return the objects of all processes in rank order; they must be picklable."""
    size = rank_and_size()[1]
    if size == 1:
        return [value]
    found: list[Any] = [None] * size
    _ask(dist.all_gather_object, found, value)
    return found


def _ask(collective: Callable[..., Any], *args: Any) -> None:
    try:
        collective(*args)
    except RuntimeError as error:  # whatever gloo and nccl say of a connection that is closed or timed out
        raise lost(error) from error


def run_on_all_ranks(check: Callable[[], T]) -> T:
    """Return the result of a check; if it fails in one process, raise its error in all: none waits forever."""
    result: Any = None
    error: Exception | None = None
    try:
        result = check()
    except Exception as found:  # an engine or kernel of the user's may raise anything
        error = found
    every = gather(None if error is None else (type(error), str(error)))
    if error is not None and len(set(every)) == 1:
        raise error
    for rank, failed in enumerate(every):
        if failed is not None:
            kind = failed[0] if issubclass(failed[0], ValueError | TypeError | OSError) else RuntimeError
            raise kind(f"process {rank} of {len(every)}: {failed[1]}") from error
    return result  # type: ignore[no-any-return]


def check_same_options(options: Mapping[str, Any]) -> None:
    """Refuse options that differ between processes, naming the first; functions are compared by their names."""
    names = {key: getattr(v, "__qualname__", type(v).__qualname__) for key, v in options.items() if callable(v)}
    for rank, others in enumerate(every := gather({**options, **names})):
        for name, value in every[0].items():
            if value != others[name]:
                raise ValueError(
                    f"{name} differs between processes: {value!r} in process 0, {others[name]!r} in process {rank}; "
                    "start all processes with the same options and data of the same kind"
                )
