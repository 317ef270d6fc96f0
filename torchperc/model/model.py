"""A fitted model as one thing and one file: everything between the features of a table and its labels or targets."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from torchperc._checks import Data, as_csr, check_choice, check_int, find_non_finite, is_sparse
from torchperc.data.scaling import Scaler, unscaled_weights
from torchperc.data.table_encoder import TableEncoder
from torchperc.data.table_files import shortest
from torchperc.model.describe import as_net, described_net, has_bias, why_not_described
from torchperc.model.model_file import MODEL, model_file
from torchperc.model.safetensors import read_safetensors, save_safetensors
from torchperc.nn import functional as tpf
from torchperc.nn.heads import Head, LMSHead, LogisticHead, PerceptronHead, RegressionHead
from torchperc.nn.heads import head as head_by_name
from torchperc.nn.modules import MLP, JointPerceptron
from torchperc.samples import convert

FORMAT = 3  # of the description in a file
DESCRIPTION = "torchperc.model"  # its name among the file's texts
_HEADS: dict[str, type[Head]] = {"perceptron": PerceptronHead, "lms": LMSHead, "logistic": LogisticHead}
_HEADS["regression"] = RegressionHead
_LARGE, _FAR = 1e30, 2.0**12  # with |shift|/scale = 2¹², a raw feature in float32 is coarser than 1/4096 of its scale


class Outputs(NamedTuple):
    """What a model says of N samples."""

    scores: Tensor
    """(N,) with one score per sample, else (N, K). Of a regression predictions (N,), float64, in its units."""
    label: Tensor | None = None
    """(N,) int64: the index of the label in ``labels``, with two labels too; of a classifier only."""
    probabilities: Tensor | None = None
    """(N, K) in the order of ``labels``, (N, 2) with two; of a logistic head only."""


@dataclass(frozen=True, eq=False)  # tensors have no single answer to ==
class FittedModel:
    """A net with its features, their scaling, what its scores mean, and the labels.

        X → missing values imputed → (X − shift) / scale → net → scores → head → labels

    With a RegressionHead the scores become predictions, scores·scale + shift by the target's own scaler, in float64.
    Scaling is done in float64 and rounded to the net's type after it, as in training. A missing value (NaN) becomes
    the mean that training imputed, and is an error if it imputed none. The net is a copy on the CPU. :meth:`of` fills
    in what is left out.

    Args:
        net: a Perceptron, MulticlassPerceptron, JointPerceptron (with its block features), ``nn.Linear`` or MLP (with
            an activation that has a name), of float32 or float64.
        head: a PerceptronHead, LMSHead, LogisticHead or RegressionHead.
        labels: their names. Two for one score per sample, of which the second is +1; K for K scores, in the
            order of the class indices; none for a regression.
        names: of the features.
        scaler: fitted on the training samples; ``None`` if they were not scaled.
        encoding: how the columns of a table become these features, if they come from one.
        about: further text to keep with the model, by name: data, seed, error …
        target: the name of what is predicted, if it has one.
        target_scaler: of a regression, the scaling of the training targets; ``None`` if there was none.

    Example:
        >>> import torchperc as tp
        >>> X, y = tp.data.gate("AND")
        >>> net = tp.Perceptron(2)
        >>> _ = tp.RuleTrainer().fit(net, X, y)
        >>> model = FittedModel.of(net, labels=("no", "yes"), names=("left", "right"))
        >>> model.predict([[0, 1], [1, 1]]), model.scores([[0, 1], [1, 1]])
        (['no', 'yes'], tensor([-2.,  1.]))
        >>> _ = tp.minimise(net, tp.RegressionHead(), [[0, 1], [1, 1], [2, 0]], [3.0, 5.0, 7.0])
        >>> FittedModel.of(net, "regression").predict([[5, 5]])
        [13.0]
    """

    net: nn.Module
    head: Head
    labels: tuple[str, ...]
    names: tuple[str, ...]
    scaler: Scaler | None = None
    encoding: TableEncoder | None = None
    about: Mapping[str, str] = field(default_factory=dict)
    target: str | None = None
    target_scaler: Scaler | None = None

    def __post_init__(self) -> None:
        _check_net(self.net)
        if type(self.head) not in _HEADS.values():
            raise TypeError(f"head must be one of {', '.join(_HEADS)}, found {self.head!r}; give a head")
        scores = _scores(self.net)
        if self.regression and (self.labels or scores != 1):
            given = f"labels={self.labels!r} and a net with {scores} outputs"
            raise ValueError(f"{given} cannot be combined with a RegressionHead; use no labels, and one output")
        if self.target_scaler is not None and (not self.regression or len(_statistics(self.target_scaler)[0]) != 1):
            raise ValueError("target_scaler must be that of one target of a RegressionHead; use scaler.fit_target(y)")
        if not self.regression:
            _check_texts("labels", self.labels, max(2, scores), "class of the net")
        if len(set(self.labels)) < len(self.labels):
            raise ValueError(f"labels={self.labels!r} has one of them twice; give each a unique name")
        _check_texts("names", self.names, self.width, "feature of the net")
        scaled = self.width if self.scaler is None else len(_statistics(self.scaler)[0])
        encoded = self.width if self.encoding is None else self.encoding.n_features
        for what, width in (("scaler", scaled), ("encoding", encoded)):
            if width != self.width:
                raise ValueError(f"{what} is for {width} features but the net takes {self.width}; use those of one run")
        for name, text in self.about.items():
            if not isinstance(name, str) or not isinstance(text, str):
                raise TypeError(f"about must map str to str, found {name!r}: {text!r}; write str(...) around it")
        object.__setattr__(self, "about", dict(self.about))
        object.__setattr__(self, "net", copy.deepcopy(self.net).cpu().eval().requires_grad_(False))

    @classmethod
    def of(
        cls,
        net: nn.Module,
        head: Head | str = "perceptron",
        *,
        labels: Iterable[object] | None = None,
        names: Iterable[str] | None = None,
        scaler: Scaler | None = None,
        encoding: TableEncoder | None = None,
        about: Mapping[str, str] | None = None,
        target: str | None = None,
        target_scaler: Scaler | None = None,
    ) -> FittedModel:
        """A model from what training left, with names for what has none; other arguments as for the class.

        Args:
            head: a head, or its name, see :func:`torchperc.nn.heads.head`.
            labels: of any kind, such as an estimator's ``classes_``; those of the encoding by default, else −1 and +1
                or 0 … K−1, and none for a regression.
            names: those of the encoding by default, else x1, x2, …
            target: that of the encoding by default.

        Example:
            >>> FittedModel.of(nn.Linear(2, 3), "logistic", labels=np.array([1.0, 2.0, 7.5])).labels
            ('1', '2', '7.5')
        """
        _check_net(net)
        head = head_by_name(head) if isinstance(head, str) else head
        if labels is None:
            many = range(_scores(net)) if _scores(net) > 1 else ("-1", "+1")
            labels = () if isinstance(head, RegressionHead) else many if encoding is None else encoding.labels
        if names is None:
            names = _numbered(_width(net)) if encoding is None else encoding.feature_names
        target = encoding.target if target is None and encoding is not None else target
        texts = tuple(map(_text, labels)), tuple(map(str, names))
        return cls(net, head, *texts, scaler, encoding, about or {}, target, target_scaler)

    @property
    def regression(self) -> bool:
        """Whether it predicts numbers rather than labels."""
        return isinstance(self.head, RegressionHead)

    @property
    def width(self) -> int:
        """The number of features."""
        return _width(self.net)

    @property
    def dtype(self) -> torch.dtype:
        """The type of the net's weights and scores."""
        return next(self.net.parameters()).dtype

    @torch.no_grad()
    def outputs(self, X: Data) -> Outputs:
        """Scores, indices of labels and, from a logistic head, probabilities; of a regression predictions as scores.

        Args:
            X: raw features (N, d), before scaling, dense or sparse (scipy's or torch's). Sparse ones need a scaler
                without a shift. The columns of a pandas frame, or the keys of a list of dicts, are found by name, and
                encoded as in training, text too.

        Example:
            >>> import torchperc as tp
            >>> FittedModel.of(tp.Perceptron(1), "logistic").outputs([[3.0]])
            Outputs(scores=tensor([0.]), label=tensor([0]), probabilities=tensor([[0.5000, 0.5000]]))
        """
        Z = self._scaled_features(self._by_name(X))
        dense = isinstance(self.net, MLP) or Z.layout == torch.strided
        scores = self.net(Z) if dense else tpf.linear(Z, *linear_layers(self.net)[0])
        return answers(self.head, one_or_many(scores), self.target_scaling())

    def scores(self, X: Data) -> Tensor:
        """The scores of the net, (N,) or (N, K), for what :meth:`outputs` accepts; of a regression the predictions."""
        return self.outputs(X).scores

    def predict(self, X: Data) -> list[Any]:
        """The labels, by name, for what :meth:`outputs` accepts; of a regression numbers, in the target's own units."""
        found = self.outputs(X)
        return found.scores.tolist() if found.label is None else [self.labels[k] for k in found.label.tolist()]

    def probabilities(self, X: Data) -> Tensor | None:
        """The probability of each label, (N, K), or (N, 2) with two; ``None`` unless the head is logistic."""
        return self.outputs(X).probabilities

    def _by_name(self, X: Data) -> Data:
        """The features of a frame or of a list of dicts; all else as it is."""
        frame = hasattr(X, "columns") and hasattr(X, "iloc")
        dicts = isinstance(X, list) and bool(X) and isinstance(X[0], Mapping)
        if not frame and not dicts:
            return X
        if self.encoding is not None and self.encoding.n_columns is None:
            return self.encoding.transform(X)
        if dicts:
            raise TypeError("X is a list of dicts, but the model was not learned from a table with names; pass numbers")
        names = [str(name) for name in X.columns]
        if self.names == _numbered(self.width) and names != list(self.names):  # nobody ever named them
            return X.to_numpy()
        if lost := [name for name in self.names if names.count(name) != 1]:
            raise ValueError(f"X must have each of the columns {', '.join(self.names[:20])} once; look at {lost[0]!r}")
        return X.iloc[:, [names.index(name) for name in self.names]].to_numpy()

    def _scaled_features(self, X: Data) -> Tensor:
        """Raw features checked, imputed, scaled in float64 and then of the net's type; sparse ones as a CSR tensor."""
        scaling, encoding = self.scaling(), self.encoding
        if not is_sparse(X):
            kind: dict[str, Any] = {"dtype": torch.float64, "device": torch.device("cpu"), "convert": True}
            given = convert.features(X, width=self.width, finite=False, **kind)
            given = convert.features(given if encoding is None else encoding.impute(given), **kind)
            return convert.features(_scaled(given, scaling), dtype=self.dtype, convert=True)
        if scaling is not None and scaling[0].any():
            raise TypeError("X is sparse and the scaler subtracts a shift, which fills it; pass X.toarray()")
        if encoding is not None and encoding.imputed_values is not None and X.shape[1] == self.width:
            X = as_csr(X).copy()
            X.data = np.where(np.isnan(X.data), np.array(encoding.imputed_values)[X.indices], X.data)
        Z = convert.sparse_features(X, dtype=torch.float64, width=self.width)
        if scaling is not None:
            Z = Z.copy()
            Z.data /= scaling[1].numpy()[Z.indices]
        return convert.csr_tensor(convert.sparse_features(Z, dtype=self.dtype))

    def scaling(self) -> tuple[Tensor, Tensor] | None:
        """Shift and scale of the features, (d,) each; ``None`` if they are not scaled."""
        if self.scaler is None:
            return None
        shift, scale = _statistics(self.scaler)
        return None if not shift.any() and (scale == 1).all() else (shift, scale)

    def target_scaling(self) -> Tensor:
        """Shift and scale of a regression's target (2,), float64; 0 and 1 if it is not scaled."""
        if self.target_scaler is None:
            return torch.tensor([0.0, 1.0], dtype=torch.float64)
        return torch.cat(_statistics(self.target_scaler))

    def raw_weights(self) -> tuple[Tensor, float] | None:
        """Weights (d,) and bias of a linear regression in the units of features and target; ``None`` if not linear.

            prediction = w·x + b

        Example:
            >>> from torchperc.data import Standard
            >>> scaler, target = Standard().fit([[1.0], [3.0]]), Standard().fit_target([10.0, 30.0])
            >>> net = nn.Linear(1, 1).double()
            >>> _ = net.load_state_dict({"weight": torch.ones(1, 1), "bias": torch.zeros(1)})
            >>> FittedModel.of(net, "regression", scaler=scaler, target_scaler=target).raw_weights()
            (tensor([10.], dtype=torch.float64), 0.0)
        """
        (weight, bias), *more = linear_layers(self.net)
        if not self.regression or more:
            return None
        weight, bias = weight.double()[0], torch.zeros(()) if bias is None else bias.double()[0]
        weight, bias = unscaled_weights(weight, bias, self.scaler, self.target_scaler)
        return weight, float(bias)

    @property
    def input_dtype(self) -> torch.dtype:
        """The type of raw features for :meth:`module`: the net's; float64 if float32 would round some of them away.

        That is where ``|shift|`` > 2¹²·scale, as of a date in seconds that varies by minutes, and outside
        10⁻³⁰ to 10³⁰.
        """
        scaling = self.scaling()
        if scaling is None:
            return self.dtype
        shift, scale = scaling
        far = (shift.abs() > _FAR * scale) | (shift.abs() + scale > _LARGE) | (scale < 1 / _LARGE)
        return torch.float64 if far.any() else self.dtype

    def module(self) -> FittedModule:
        """The model as a plain module for export and for other programs, equal to :meth:`outputs` to the bit.

        It maps X (N, d) of ``input_dtype`` to the tuple (scores, label), with a logistic head (scores, label,
        probabilities), of a regression to (predictions,), as in :class:`Outputs`. NaN is imputed; if training imputed
        nothing, the label is −1 and the prediction NaN. The scaling is a step of its own in front of the net, in
        float64: folded into the weights it would lose precision where the data lie far from the origin.

        Example:
            >>> import torchperc as tp
            >>> FittedModel.of(tp.Perceptron(2), "logistic").module()(torch.zeros(1, 2))
            (tensor([0.]), tensor([0]), tensor([[0.5000, 0.5000]]))
        """
        return FittedModule(self)

    def save(self, path: str | Path) -> None:
        """Write the model to one safetensors file, atomically and with a checksum.

        The weights have the names of the net's ``state_dict``, so that the file still loads into an ``nn.Linear`` (for
        scaled features); everything else is text in the file's metadata. Nothing in it is run when it is read.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     FittedModel.of(nn.Linear(2, 1), labels=("no", "yes")).save(f"{folder}/weights.safetensors")
            ...     FittedModel.load(folder).labels
            ('no', 'yes')
        """
        kind = next(kind for kind, head in _HEADS.items() if type(self.head) is head)
        scalers = {name: getattr(self, name) for name in ("scaler", "target_scaler")}
        state = {
            "format": FORMAT,
            "torchperc": version("torchperc"),
            "net": described_net(self.net),
            "head": {"kind": kind, **asdict(self.head)},
            "encoding": None if self.encoding is None else self.encoding.to_json(),
            **{name: getattr(self, name) for name in ("labels", "names", "about", "target")},
            **{name: None if scaler is None else scaler.state() for name, scaler in scalers.items()},
        }
        save_safetensors(self.net, path, {DESCRIPTION: json.dumps(state, allow_nan=False)})

    @classmethod
    def load(cls, path: str | Path) -> FittedModel:
        """Read a model that :meth:`save` wrote, by its file or by the folder of a run, with ``weights.safetensors``.

        A file that is damaged, was changed elsewhere, is of another format or holds weights alone is a ``ValueError``.

        Example:
            >>> FittedModel.load("no/such/folder")
            Traceback (most recent call last):
            ValueError: no such run or model: no/such/folder; name the folder of a run, or its weights.safetensors
        """
        path = model_file(Path(path))
        tensors, texts, has_checksum = read_safetensors(path)
        state = _description(path, texts, has_checksum)
        try:
            with torch.device("meta"):  # sizes are compared before a net of those sizes takes memory
                net = as_net(state["net"])
            held, described = (
                {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in each.items()}
                for each in (tensors, net.state_dict())
            )
            if held != described:
                raise ValueError(f"it describes a net of {described} and holds {held}")
            net.to_empty(device="cpu").load_state_dict(tensors)
            options = dict(state["head"])
            head = _HEADS[check_choice("head", options.pop("kind"), tuple(_HEADS))](**options)
            encoding = None if state["encoding"] is None else TableEncoder.from_json(state["encoding"])
            scaler, target_scaler = (
                None if state[name] is None else Scaler.from_state(state[name]) for name in ("scaler", "target_scaler")
            )
            names = tuple(state["labels"]), tuple(state["names"])
            return cls(net, head, *names, scaler, encoding, state["about"], state["target"], target_scaler)
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else error
            raise ValueError(f"{path} does not hold a model that can be used: {what}; export it again") from None


def _description(path: Path, texts: Mapping[str, str], has_checksum: bool) -> dict[str, Any]:
    """The description in a file's text, if it is one that can be trusted and understood."""
    if DESCRIPTION not in texts:
        own = "load them with load_safetensors into a net of yours"
        raise ValueError(f"{path} holds weights but no description of a model; {own}, or name the {MODEL} of a run")
    if not has_checksum:
        raise ValueError(f"{path} has lost its checksum, so another program has written it; export it again")
    try:
        state = dict(json.loads(texts[DESCRIPTION]))
        found = check_int("format", state["format"], at_least=1)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"{path} has an unknown description of its model ({error}); export it again") from None
    if found != FORMAT:
        why = f"{path} is of format {found}, written by torchperc {state.get('torchperc')}"
        remedy = "pip install -U torchperc" if found > FORMAT else "learn it again"
        raise ValueError(f"{why}; this one reads format {FORMAT}: {remedy}")
    return state


class FittedModule(nn.Module):
    """What :meth:`FittedModel.module` gives: torch's own operations only, so that it can be traced; checks nothing."""

    means: Tensor | None
    shift: Tensor | None
    scale: Tensor | None
    target_scaling: Tensor

    def __init__(self, model: FittedModel) -> None:
        super().__init__()
        self.net, self.head, self.dtype = copy.deepcopy(model.net), model.head, model.dtype
        self.register_buffer("target_scaling", model.target_scaling())
        shift, scale = model.scaling() or (None, None)
        means = None if model.encoding is None else model.encoding.imputed_values
        self.register_buffer("means", None if means is None else torch.tensor(means, dtype=model.input_dtype))
        self.register_buffer("shift", shift)
        self.register_buffer("scale", scale)
        self.eval()

    def forward(self, X: Tensor) -> tuple[Tensor, ...]:
        """Scores, labels, probabilities if there are; or predictions."""
        X = X if self.means is None else torch.where(X.isnan(), self.means, X)
        scaling = None if self.shift is None or self.scale is None else (self.shift, self.scale)
        scores = one_or_many(self.net(_scaled(X, scaling).to(self.dtype)))
        said = answers(self.head, scores, self.target_scaling)
        if self.means is None and said.label is not None:
            said = said._replace(label=said.label.masked_fill(X.isnan().any(1), -1))
        return tuple(value for value in said if value is not None)


def answers(head: Head, scores: Tensor, target: Tensor | None = None) -> Outputs:
    """What a head makes of scores (N,) or (N, K): indices of labels, and probabilities if it is logistic.

    A regression head makes predictions of them, by shift and scale of the target (2,).
    """
    if isinstance(head, RegressionHead):
        found = head.output(scores).double()
        return Outputs(found if target is None else found * target[1] + target[0])
    many, decided = scores.dim() == 2, head.decide(scores)
    label = decided if many else (decided + 1) // 2
    if not isinstance(head, LogisticHead):
        return Outputs(scores, label)
    chances = head.output(scores) if many else torch.stack([head.output(-scores), head.output(scores)], -1)
    return Outputs(scores, label, chances)


def one_or_many(scores: Tensor) -> Tensor:
    """Scores (N, 1), as of ``nn.Linear(d, 1)``, in the shape (N,); others as they are."""
    return scores.squeeze(-1) if scores.dim() == 2 and scores.shape[-1] == 1 else scores


def linear_layers(net: nn.Module) -> list[tuple[Tensor, Tensor | None]]:
    """Weight (n, m) and bias (n,) of each layer of a model's net; one layer for a linear net."""
    if isinstance(net, JointPerceptron):
        blocks = net.weight.reshape(net.num_classes, -1)
        return [(blocks[:, : net.in_features], blocks[:, -1] if has_bias(net) else None)]
    layers: Iterable[Any] = net.layers if isinstance(net, MLP) else (net,)
    return [(layer.weight, layer.bias) for layer in layers]


def _scaled(X: Tensor, scaling: tuple[Tensor, Tensor] | None) -> Tensor:
    return X if scaling is None else (X.to(torch.float64) - scaling[0]) / scaling[1]


def _numbered(width: int) -> tuple[str, ...]:
    return tuple(f"x{j + 1}" for j in range(width))


def _text(label: object) -> str:
    value = label.item() if isinstance(label, np.generic | Tensor) else label
    return shortest(value) if isinstance(value, float) else str(value)


def _statistics(scaler: Scaler) -> tuple[Tensor, Tensor]:
    if scaler.shift is None or scaler.scale is None:
        raise ValueError(f"scaler={type(scaler).__name__}() is not fitted; give the one that training used")
    return scaler.shift, scaler.scale


def _check_texts(what: str, values: object, count: int, each: str) -> None:
    if not isinstance(values, tuple) or not all(isinstance(value, str) for value in values):
        raise TypeError(f"{what} must be a tuple of str, found {values!r}; FittedModel.of converts others")
    if len(values) != count:
        raise ValueError(f"{what} has {len(values)} entries; give {count}, one for each {each}")


def _check_net(net: object) -> None:
    """Refuse a net that could not be made again from a description."""
    if (reason := why_not_described(net)) is not None:
        raise TypeError(f"{reason}; save other nets with save_safetensors")
    assert isinstance(net, nn.Module)
    dtypes = {parameter.dtype for parameter in net.parameters()}
    if len(dtypes) != 1 or not dtypes <= {torch.float32, torch.float64}:
        found = ", ".join(sorted(map(str, dtypes)))
        raise TypeError(f"net must be of torch.float32 or torch.float64, found {found}; use net.float()")
    if bad := find_non_finite(net.named_parameters()):
        raise ValueError(f"training of the net did not finish: {bad}, and weights must be finite; train it again")


def _width(net: nn.Module) -> int:
    width: int = net.in_features  # type: ignore[assignment]  # all that _check_net lets through have it
    return width


def _scores(net: nn.Module) -> int:
    return len(linear_layers(net)[-1][0])
