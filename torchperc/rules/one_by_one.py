"""Online learning of single samples: what a call needs is kept ready, so that it takes microseconds.

The first sample of a stream is learned as any chunk is, with every check. What follows is learned here if it looks as
usual: one row of the right width and type, one label, the same options, the net as the stream left it. Everything else
goes the general way, which finds out what is wrong; the results are the same.
"""

from __future__ import annotations

import sys
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from torchperc.nn.modules import MulticlassPerceptron, Perceptron
from torchperc.rules.conventions import Verdict
from torchperc.rules.log import Mistake, MistakeLog, Mistakes
from torchperc.rules.models import LinearModel, Net
from torchperc.rules.problem import learning_margin
from torchperc.rules.run import EpochRecord, RuleResult
from torchperc.rules.spaces import LinearSpace, Weights
from torchperc.rules.unlogged import UnloggedResult
from torchperc.samples import compiling
from torchperc.samples.rows import CsrRows, DenseRows, Rows

_Array: TypeAlias = "np.ndarray[Any, Any]"
_OVERFLOW = -(2**31)
_NETS = (Perceptron, MulticlassPerceptron, nn.Linear)


class Options(Protocol):
    """What :class:`torchperc.rules.trainer.RuleTrainer` knows of a stream."""

    lr: float
    tie: str
    bias_step: str | None
    margin: float
    select: str
    engine: Any
    log: str
    order: Any
    class_weight: Any
    kernel: Any
    distributed: str | None


class _State(NamedTuple):
    """Weights at one moment, not to be written to: (K, d) and (K,), not scaled."""

    weight: _Array
    bias: _Array

    def tensors(self) -> Weights:
        """The same as tensors."""
        return Weights(torch.from_numpy(self.weight), torch.from_numpy(self.bias))


class _Seen(NamedTuple):
    """One sample as it was learned, from which a result is made when it is asked for."""

    space: LinearSpace  # with no samples in it
    rows: tuple[_Array, ...]
    own: int
    mistake: Mistake | None
    before: _State
    after: _State


class SingleResult(RuleResult):
    """The result of one sample; its parts are made when they are asked for."""

    _seen: _Seen
    _averaged: _State | None

    @classmethod
    def after(cls, seen: _Seen, averaged: _State | None) -> SingleResult:
        """A result that makes its parts later."""
        result = object.__new__(cls)
        select = "last" if averaged is None else "averaged"
        vars(result).update(_seen=seen, _averaged=averaged, select=select)
        return result

    @cached_property
    def _unchanged(self) -> bool:
        before, after = self._seen.before, self._seen.after
        return before is after or all(map(np.array_equal, before, after))

    @cached_property
    def verdict(self) -> Verdict:
        """As after one epoch."""
        if self._seen.mistake is None:
            return Verdict.SEPARATED
        return Verdict.CYCLING if self._unchanged else Verdict.BUDGET

    @cached_property
    def cycle(self) -> tuple[int, int] | None:
        """(0, 1) if the mistake did not change the weights."""
        return (0, 1) if self.verdict is Verdict.CYCLING else None

    @property
    def mistakes(self) -> int:
        """0 or 1."""
        return int(self._seen.mistake is not None)

    @cached_property
    def history(self) -> tuple[EpochRecord, ...]:
        """One epoch of one sample."""
        from torchperc.rules.engines.reference import weights_norm

        space, mistake, before = self._seen.space, self._seen.mistake, self._seen.before
        norm = weights_norm(map(torch.from_numpy, self._seen.after), space.bias_scale)
        from_zero = mistake is not None and not before.weight.any() and not before.bias.any()
        upper = norm / abs(mistake.coef) if mistake is not None and from_zero else None
        return (EpochRecord(1, self.mistakes, norm * space.scale, None, upper),)

    @cached_property
    def model(self) -> LinearModel:
        """The weights after the sample, or the average over the stream."""
        return self.average or self._seen.space.model(self._seen.after.tensors().clone())

    @cached_property
    def average(self) -> LinearModel | None:
        """The average over the stream, if it was asked for."""
        if self._averaged is None:
            return None
        mean = self._averaged.tensors()
        return LinearModel(mean.weight, mean.bias, self._seen.space.classes)

    @cached_property
    def log(self) -> MistakeLog:
        """The log of this sample."""
        space, made = self._seen.space, [] if self._seen.mistake is None else [self._seen.mistake]
        rows = _rows(self._seen.rows, space.rows.width)
        start = self._seen.before.tensors().clone()
        filled = LinearSpace(rows, space.classes, space.bias_scale, scale=space.scale)
        return MistakeLog.of(filled, torch.tensor([self._seen.own]), start, Mistakes.of(made), [1])


class UnloggedSingle(SingleResult, UnloggedResult):
    """The same without its log."""

    __repr__ = UnloggedResult.__repr__
    log = UnloggedResult.log  # type: ignore[override]


class OneByOne:
    """A stream of single samples for one net, with one set of options.

    Args:
        trainer: has the options.
        net: what learns.
        space: of the samples so far.
        weights: the weights now, not scaled.
        total: the sum of the weights after each sample, if an average is asked for.
        steps: over how many samples.
    """

    def __init__(
        self, trainer: Options, net: Net, space: LinearSpace, weights: Weights, total: Weights | None, steps: int
    ) -> None:
        from torchperc.rules.engines.rounding import nearness

        self._settings, self._tie = _settings(trainer), compiling.TIES[trainer.tie]
        self.sparse, self.width, self._classes = space.rows.sparse, space.rows.width, space.classes
        laid = compiling.laid_out(weights.weight, self.sparse)
        self._w, self._weight, self._bias = laid.loop, laid.tensor.numpy(), weights.bias.numpy().copy()
        self._now = _State(self._weight.copy(), self._bias.copy())
        self._x = np.zeros((1, self.width), self._w.dtype)
        self._space = LinearSpace(_rows((self._x,), self.width), space.classes, space.bias_scale, scale=space.scale)
        self._near, self._out = nearness(self._space), np.empty(len(self._bias) + 8, self._w.dtype)
        self._coef = 1.0 if space.scale != 1.0 else float(trainer.lr)
        self._margin = float(learning_margin(trainer.margin, space))
        self._scale = self._w.dtype.type(space.scale)
        self._precise = self._in_double()
        self._sum = None if total is None else (total.weight.numpy().copy(), total.bias.numpy().copy())
        self.steps, self._logged = steps, trainer.log == "on"
        self._parameters = [each for each in (net.weight, net.bias) if each is not None]
        self._places = [each.data_ptr() for each in self._parameters]
        self._views = [each.detach().numpy() for each in self._parameters]
        self._left = [view.tobytes() for view in self._views]

    @staticmethod
    def can(trainer: Options, net: object, space: object) -> bool:
        """Whether single samples can be learned here, given these options and this net."""
        return (
            type(net) in _NETS
            and type(space) is LinearSpace
            and isinstance(space.rows, DenseRows | CsrRows)
            and compiling.pays(space.rows.dtype, space.rows.device, compiling.WORTH_LOADING)
            and trainer.select in ("last", "averaged")
            and trainer.tie != "strict"
            and trainer.class_weight is None
            and trainer.engine in ("auto", "compiled", "reference")
        )

    def weights(self) -> Weights:
        """The weights now, not scaled."""
        return self._now.tensors().clone()

    def total(self) -> Weights | None:
        """The sum of the weights after each sample."""
        return None if self._sum is None else Weights(*(torch.from_numpy(part.copy()) for part in self._sum))

    def left(self) -> Weights:
        """What the net was left with."""
        weight, *bias = (torch.from_numpy(np.frombuffer(left, view.dtype).reshape(view.shape).copy())
                         for left, view in zip(self._left, self._views, strict=True))  # fmt: skip
        return Weights(weight, bias[0] if bias else weight.new_zeros(0))

    def learn(self, trainer: Options, net: Any, X: Any, y: Any) -> RuleResult | None:
        """Learn one sample, or nothing if something is not as usual."""
        from torchperc.rules.loops.single import present

        own = self._label(y)
        if own is None or not self._as_left(trainer, net) or (rows := self._sample(X)) is None:
            return None
        before = self._now
        near, scale = self._near, float(self._space.bias_scale)
        wrong = present(
            rows, self.width, own, self._coef, self._w, self._bias, scale, self._tie, self._margin, near, self._out
        )  # fmt: skip
        if wrong == _OVERFLOW:
            self._weight[...], self._bias[...] = before
            return None
        made = None
        if wrong != own:
            made = Mistake(0, 0, self._coef * own if self._classes is None else self._coef, wrong)
            self._now = _State(self._weight.copy(), self._bias.copy())
        mean = None if self._sum is None else self._averaged(rows, own, made)
        if mean is not None:
            self._write(*mean)
        elif made is not None:
            self._write(self._weight * self._scale, self._bias * self._scale)
        if self._logged:
            rows = tuple(part.copy() for part in rows)
        seen = _Seen(self._space, rows, own, made, before, self._now)
        return (SingleResult if self._logged else UnloggedSingle).after(seen, mean)

    def _averaged(self, rows: tuple[_Array, ...], own: int, made: Mistake | None) -> _State:
        """Add the weights after this sample, in float64 and not rounded on the way, to those before; their mean."""
        from torchperc.rules.loops.single import add_weights

        assert self._sum is not None
        weight, bias = self._precise
        if made is not None:
            steps = ((0, made.coef),) if self._classes is None else ((own, made.coef), (made.wrong, -made.coef))
            columns = slice(None) if len(rows) == 1 else rows[1]
            x = (rows[0][0] if len(rows) == 1 else rows[0]).astype(np.float64)
            for k, step in steps:
                weight[k, columns] += step * x
                bias[k] += step * self._space.bias_scale
            self._precise = self._in_double()
        self.steps += 1
        mean = _State(np.empty_like(self._now.weight), np.empty_like(self._now.bias))
        add_weights(weight, bias, *self._sum, self.steps, self._scale, *mean)
        return mean

    def _in_double(self) -> tuple[_Array, _Array]:
        """A copy of the weights as they are now, in float64."""
        return self._now.weight.astype(np.float64), self._now.bias.astype(np.float64)

    def _as_left(self, trainer: Options, net: Any) -> bool:
        """Whether options and net are as the last sample left them."""
        if _settings(trainer) != self._settings:
            return False
        for each, known, place, view, left in zip(
            (net.weight, net.bias), self._parameters, self._places, self._views, self._left, strict=False
        ):
            if each is not known or each.data_ptr() != place or view.tobytes() != left:
                return False
        return True

    def _write(self, *numbers: _Array) -> None:
        for view, values, parameter in zip(self._views, numbers, self._parameters, strict=False):
            view[...] = values
            torch.autograd.graph.increment_version(parameter)
        self._left = [view.tobytes() for view in self._views]

    def _label(self, y: Any) -> int | None:
        """The label, if it is one."""
        kind = type(y)
        if kind is list or kind is tuple:
            value = y[0] if len(y) == 1 else None
        elif kind is np.ndarray and y.dtype.kind in "if":
            value = y.item() if y.shape == (1,) else None
        elif kind is Tensor and y.dtype is torch.int64:
            value = y.item() if y.dim() == len(y) == 1 else None
        else:
            return None
        if self._classes is None:
            return int(value) if type(value) in (int, float) and value in (1, -1) else None
        return value if type(value) is int and 0 <= value < self._classes else None

    def _sample(self, X: Any) -> tuple[_Array, ...] | None:
        """The sample as compiled loops see it, if it is one; all but its order and whether it is finite is checked."""
        kind = type(X)
        if self.sparse:
            return self._sparse_sample(X)
        if kind is list and len(X) == 1 and type(X[0]) in (list, tuple) and len(X[0]) == self.width:
            try:
                X = np.array(X)
            except ValueError:
                return None
        elif kind is Tensor:
            try:
                X = X.numpy()
            except (TypeError, RuntimeError):  # on a device, sparse, or part of a graph
                return None
            if X.dtype.kind == "f" and X.dtype != self._x.dtype:
                return None
        elif kind is not np.ndarray:
            return None
        if X.shape != self._x.shape or X.dtype.kind not in "if" or X.dtype.itemsize < 4 or X.dtype.itemsize > 8:
            return None
        if X.dtype == self._x.dtype:
            self._x[...] = X
        else:
            with np.errstate(over="ignore"):
                self._x[...] = X
            if X.dtype.kind == "i" and not np.array_equal(self._x.astype(X.dtype), X):
                return None
        return (self._x,)

    def _sparse_sample(self, X: Any) -> tuple[_Array, ...] | None:
        scipy_sparse = sys.modules.get("scipy.sparse")
        if scipy_sparse is None or type(X) not in (scipy_sparse.csr_array, scipy_sparse.csr_matrix):
            return None
        if X.shape != self._x.shape or X.data.dtype != self._x.dtype or len(X.data) != len(X.indices):
            return None
        starts = X.indptr
        if len(starts) != 2 or starts[0] != 0 or starts[1] != len(X.data):
            return None
        return X.data.copy(), X.indices.astype(np.int32), starts.astype(np.int32)


def _rows(arrays: tuple[_Array, ...], width: int) -> Rows:
    if len(arrays) == 1:
        return DenseRows(torch.from_numpy(arrays[0]))
    from scipy.sparse import csr_array

    return CsrRows(csr_array(arrays, shape=(1, width)))


def _settings(trainer: Options) -> tuple[Any, ...]:
    """The options that a plan was made with; of an order only whether it is as given."""
    return (
        trainer.lr, trainer.tie, trainer.bias_step, trainer.margin, trainer.select, trainer.engine, trainer.log,
        trainer.class_weight, trainer.kernel, trainer.distributed, type(trainer.order) is str and trainer.order,
    )  # fmt: skip
