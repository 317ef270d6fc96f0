"""Samples spread over the processes of torch.distributed: which of them each holds, and what they tell each other."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from torchperc._lazy import Late

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist
    from torch import Tensor
else:
    torch, dist = Late("torch"), Late("torch.distributed")

DISTRIBUTED = ("exact", "mix")
"""How processes learn one model by rule: the mistakes of one process, or mixed weights."""
T = TypeVar("T")
_LOST = re.compile(r"gloo/|connectFullMesh|NCCL|Connection (closed|reset|refused)|Broken pipe|[Tt]imed out")


class ProcessError(RuntimeError):
    """Another process has ended or does not answer."""


def is_lost(error: BaseException) -> bool:
    """Whether an error of torch says that another process has ended or does not answer.

    Example:
        >>> is_lost(RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:1"))
        True
    """
    known = isinstance(error, ProcessError | dist.DistError)
    return known or (isinstance(error, RuntimeError) and _LOST.search(str(error)) is not None)


def lost(error: BaseException) -> ProcessError:
    """The error of a process that cannot go on without another, in plain words.

    Example:
        >>> str(lost(RuntimeError("Connection closed by peer")))[:31]
        'process 0 of 1 lost the others:'
    """
    if isinstance(error, ProcessError):
        return error
    rank, size = here()
    return ProcessError(
        f"process {rank} of {size} lost the others: one of them has ended or did not answer in time "
        f"({said(error)}); look at its output, and resume from the last checkpoint"
    )


def said(error: BaseException) -> str:
    """What an error of torch says, without the place in its source and its advice.

    Example:
        >>> said(RuntimeError("[gloo/pair.cc:5] Connection closed by peer [::1]:9. This is typically caused by …"))
        'Connection closed by peer [::1]:9'
    """
    first = re.sub(r"^\[[^\]]*\]\s*", "", str(error).strip().partition("\n")[0])
    return first.partition(". This is typically")[0].rstrip(".")


def here() -> tuple[int, int]:
    """The number of this process and how many there are: (0, 1) without a process group.

    Example:
        >>> here()
        (0, 1)
    """
    if "torch.distributed" not in sys.modules or not dist.is_available() or not dist.is_initialized():
        return 0, 1
    return dist.get_rank(), dist.get_world_size()


def own_slice(count: int, rank: int, size: int) -> slice:
    """The rows of process ``rank`` out of ``size`` if ``count`` rows are cut into contiguous shards.

    Example:
        >>> [own_slice(7, rank, 3) for rank in range(3)]
        [slice(0, 3, None), slice(3, 5, None), slice(5, 7, None)]
    """
    least, extra = divmod(count, size)
    start = rank * least + min(rank, extra)
    return slice(start, start + least + (rank < extra))


def summed(values: Tensor) -> Tensor:
    """The sum of a tensor over all processes.

    Example:
        >>> summed(torch.ones(2))
        tensor([1., 1.])
    """
    total: Tensor = _collective(_reduced, values, dist.ReduceOp.SUM)
    return total


def least(values: Tensor) -> Tensor:
    """The smallest of each number over all processes.

    Example:
        >>> least(torch.tensor([3, 1]))
        tensor([3, 1])
    """
    found: Tensor = _collective(_reduced, values, dist.ReduceOp.MIN)
    return found


def stacked(values: Tensor) -> Tensor:
    """The tensors of all processes, in their order, which have one shape and type: (processes, …).

    Example:
        >>> stacked(torch.ones(2))
        tensor([[1., 1.]])
    """
    found: Tensor = _collective(_stacked, values)
    return found


def gathered(value: T) -> list[T]:
    """What every process gives, in their order; anything that can be pickled.

    Example:
        >>> gathered("a")
        ['a']
    """
    found: list[T] = _collective(_listed, value)
    return found


def told(value: T, source: int) -> T:
    """What process ``source`` gives; anything that can be pickled.

    Example:
        >>> told("a", 0)
        'a'
    """
    found: T = _collective(_told, value, source)
    return found


def together(check: Callable[[], T]) -> T:
    """The result of a check, or on every process the error of the first for which it fails: none waits forever.

    Example:
        >>> together(lambda: 3)
        3
    """
    result: Any = None
    error: Exception | None = None
    try:
        result = check()
    except (ValueError, TypeError, OSError) as found:
        error = found
    size = here()[1]
    if size > 1:
        errors = gathered(None if error is None else (type(error), str(error)))
        failed = [(number, *found) for number, found in enumerate(errors) if found is not None]
        if failed:
            number, kind, text = failed[0]
            everywhere = len(failed) == size and all(found[2] == text for found in failed)
            raise kind(text if everywhere else f"process {number} of {size}: {text}") from error
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def agreed_options(options: Mapping[str, Any]) -> None:
    """Refuse options that differ between processes, naming the first.

    Example:
        >>> agreed_options({"lr": 0.1})
    """
    given = gathered({name: repr(value) for name, value in options.items()})
    names = {name: None for each in given for name in each}
    for name in names:
        _check_equal(name, [each.get(name, "nothing") for each in given])


def agreed(name: str, value: T) -> T:
    """The value, if all processes have the same.

    Example:
        >>> agreed("X's width", 3)
        3
    """
    values = gathered(value)
    if any(other != values[0] for other in values):
        _check_equal(name, [repr(each) for each in values])
    return value


def _check_equal(name: str, texts: list[str]) -> None:
    for number, other in enumerate(texts):
        if other != texts[0]:
            raise ValueError(
                f"{name} differs between processes: {texts[0]} in process 0, {other} in process {number}; "
                "start all processes with the same options and data of the same kind"
            )


def by_first(act: Callable[[], T]) -> T:
    """What the first process's action returns, or its error, in all of them; only it acts on files.

    Example:
        >>> by_first(lambda: 1)
        1
    """
    first = here()[0] == 0
    done = together(lambda: act() if first else None)
    return cast(T, gathered(done)[0])


def _collective(call: Callable[..., Any], value: Any, *args: Any) -> Any:
    if here()[1] == 1:
        return [value] if call is _listed else value[None] if call is _stacked else value
    try:
        return call(value, *args)
    except RuntimeError as error:  # whatever gloo and nccl say of a connection that is closed or timed out
        raise lost(error) from error


def _reduced(values: Tensor, operation: Any) -> Tensor:
    total = _on_the_wire(values)
    dist.all_reduce(total, operation)
    return total.to(values.device)


def _stacked(values: Tensor) -> Tensor:
    given = _on_the_wire(values)
    found = [torch.empty_like(given) for _ in range(here()[1])]
    dist.all_gather(found, given)
    return torch.stack(found).to(values.device)


def _on_the_wire(values: Tensor) -> Tensor:
    """A copy where the process group can send it: nccl sends from GPUs only."""
    device = torch.device("cuda") if dist.get_backend() == "nccl" else values.device
    return values.detach().to(device, copy=True).contiguous()


def _told(value: Any, source: int) -> Any:
    found = [value]
    dist.broadcast_object_list(found, source)
    return found[0]


def _listed(value: Any) -> list[Any]:
    found: list[Any] = [None] * here()[1]
    dist.all_gather_object(found, value)
    return found
