"""Fitted models: everything from a table's features to its labels or targets, in one file."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from torchperc._checks import Data, as_csr, check_choice, find_non_finite, is_sparse
from torchperc.data.scaling import Scaler
from torchperc.data.table_encoder import Column, TableEncoder
from torchperc.data.table_files import shortest
from torchperc.model.describe import as_net, described_net, why_not_described
from torchperc.model.model_file import MODEL, model_file, save_safetensors, size_differences
from torchperc.nn.heads import Head, LMSHead, LogisticHead, PerceptronHead, RegressionHead
from torchperc.nn.heads import head as head_by_name
from torchperc.nn.modules import scores_of
from torchperc.samples import convert
from torchperc.samples.checksummed import read_checksummed

FORMAT = 3  # of the description in a file
DESCRIPTION = "torchperc.model"  # its name among the file's texts
_HEADS = {kind.__name__: kind for kind in (PerceptronHead, LMSHead, LogisticHead, RegressionHead)}
_TEXTS = ("labels", "names", "about", "target")
_LARGE, _FAR = 1e30, 2.0**12  # with |shift|/scale = 2¹², a raw feature in float32 is coarser than 1/4096 of its scale


class Outputs(NamedTuple):
    """Scores, labels and probabilities of N samples.

    Args:
        scores: (N,) with one score per sample, else (N, K). Of a regression predictions (N,), float64, in its units.
        label: (N,) int64: the index of the label in ``labels``, with two labels too; of a classifier only.
        probabilities: (N, K) in the order of ``labels``, (N, 2) with two; of a logistic head only.
    """

    scores: Tensor
    label: Tensor | None = None
    probabilities: Tensor | None = None


class FittedModel(nn.Module):
    """A net with its features, their scaling, what its scores mean, and the labels.

        X → missing values imputed → (X − shift) / scale → net → scores → head → labels

    With a RegressionHead the scores become predictions, scores·scale + shift by the target's own scaler, in float64.
    Scaling is done in float64 and rounded to the net's type after it, as in training. A missing value (NaN) becomes
    the mean that training imputed, and is an error if it imputed none. The net is a copy on the CPU.

    Args:
        net: a Perceptron, MulticlassPerceptron, JointPerceptron (with block features), ``nn.Linear`` or MLP (with an
            activation that has a name), of float32 or float64.
        head: a PerceptronHead, LMSHead, LogisticHead or RegressionHead, or its name, see :func:`torchperc.heads.head`.
        labels: of any kind, such as an estimator's ``classes_``: two for one score per sample, −1 and +1; K for K
            scores; none for a regression. By default those of the encoding, else −1 and +1 or 0 … K−1.
        names: of the features; those of the encoding by default, else x1, x2, …
        scaler: fitted on the training samples; ``None`` if they were not scaled.
        encoding: how the columns of a table become these features, if they come from one.
        about: further text to keep with the model, by name: data, seed, error …
        target: the name of what is predicted; that of the encoding by default.
        target_scaler: of a regression, the scaling of the training targets; ``None`` if there was none.

    Example:
        >>> import torchperc as tp
        >>> X, y = tp.data.gate("AND")
        >>> net = tp.Perceptron(2)
        >>> _ = tp.RuleTrainer().fit(net, X, y)
        >>> model = FittedModel(net, labels=("no", "yes"), names=("left", "right"))
        >>> model.predict([[0, 1], [1, 1]]), model.scores([[0, 1], [1, 1]])
        (['no', 'yes'], tensor([-2.,  1.]))
        >>> _ = tp.minimise(net, tp.RegressionHead(), [[0, 1], [1, 1], [2, 0]], [3.0, 5.0, 7.0])
        >>> FittedModel(net, "regression").predict([[5, 5]])
        [13.0]
    """

    def __init__(
        self,
        net: nn.Module,
        head: Head | str = "perceptron",
        *,
        labels: Iterable[object] | None = None,
        names: Iterable[object] | None = None,
        scaler: Scaler | None = None,
        encoding: TableEncoder | None = None,
        about: Mapping[str, str] | None = None,
        target: str | None = None,
        target_scaler: Scaler | None = None,
    ) -> None:
        if (reason := why_not_described(net)) is not None:
            raise TypeError(f"{reason}; save other nets with save_safetensors")
        dtypes = {str(parameter.dtype) for parameter in net.parameters()}
        if dtypes not in ({"torch.float32"}, {"torch.float64"}):
            found = ", ".join(sorted(dtypes))
            raise TypeError(f"net must be of torch.float32 or torch.float64, found {found}; use net.float()")
        if bad := find_non_finite(net.named_parameters()):
            raise ValueError(f"training of the net did not finish: {bad}, and weights must be finite; train it again")
        super().__init__()
        self.net = copy.deepcopy(net).cpu().requires_grad_(False)
        self.head: Head = head_by_name(head) if isinstance(head, str) else head
        self.regression, self.width = isinstance(self.head, RegressionHead), int(self.net.in_features)  # type: ignore[arg-type]
        self.scaler, self.encoding, self.target_scaler = scaler, encoding, target_scaler
        self.target = encoding.target if target is None and encoding is not None else target
        self.about = {str(name): str(text) for name, text in (about or {}).items()}
        scores = int(getattr(net, "num_classes", 0) or getattr(net, "out_features", 1))
        if labels is None and not self.regression:
            many = range(scores) if scores > 1 else ("-1", "+1")
            labels = many if encoding is None else encoding.labels
        if names is None:
            names = [f"x{j + 1}" for j in range(self.width)] if encoding is None else encoding.feature_names
        self.labels, self.names = (tuple(map(_text, () if texts is None else texts)) for texts in (labels, names))
        self._check(scores)
        means = None if encoding is None else encoding.imputed_values
        self.means = nn.Buffer(torch.tensor(math.nan if means is None else means, dtype=torch.float64))
        self.shift, self.scale = _buffers(None if scaler is None or scaler.kind == "none" else scaler)
        self.target_shift, self.target_scale = _buffers(target_scaler)
        self.eval()

    def _check(self, scores: int) -> None:
        """Refuse parts that do not belong together."""
        if type(self.head) not in _HEADS.values():
            raise TypeError(f"head must be perceptron, lms, logistic or regression, found {self.head!r}; give one")
        if self.regression and scores != 1:
            raise ValueError(f"net has {scores} outputs, but a RegressionHead needs one; use nn.Linear(d, 1)")
        classes, target = (0, 1) if self.regression else (max(2, scores), 0)
        encoded = None if self.encoding is None else self.encoding.feature_names
        sizes: dict[str, Any] = {"names": (self.names, self.width), "labels": (self.labels, classes)}
        sizes |= {"encoding": (encoded, self.width), "scaler": (self.scaler and self.scaler.shift, self.width)}
        sizes["target_scaler"] = (self.target_scaler and self.target_scaler.shift, target)
        for name, (part, needed) in sizes.items():
            if part is not None and len(part) != needed:
                raise ValueError(f"{name} is for {len(part)}, but net and head need {needed}; use those of one run")
        if len(set(self.labels)) < len(self.labels):
            raise ValueError(f"labels={self.labels!r} has one of them twice; give each a unique name")

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
            >>> FittedModel(tp.Perceptron(1), "logistic").outputs([[3.0]])
            Outputs(scores=tensor([0.]), label=tensor([1]), probabilities=tensor([[0.5000, 0.5000]]))
        """
        return self.answers(scores_of(self.net, self._scaled_features(self._by_name(X))))

    def forward(self, X: Tensor) -> tuple[Tensor, ...]:
        """Scores, label and, from a logistic head, probabilities; or predictions, as in :class:`Outputs`.

        The model as a plain module, for export: it maps X (N, d) of :attr:`input_dtype`, checks nothing, and is equal
        to :meth:`outputs` to the bit. If training imputed nothing, the label of a missing value is −1 and its
        prediction NaN. Scaling folded into the weights would lose precision where data lie far from the origin.

        Example:
            >>> import torchperc as tp
            >>> FittedModel(tp.Perceptron(2), "logistic")(torch.zeros(1, 2))
            (tensor([0.]), tensor([1]), tensor([[0.5000, 0.5000]]))
        """
        filled = torch.where(X.isnan(), self.means, X.double())
        said = self.answers(self.net(((filled - self.shift) / self.scale).to(self.dtype)))
        if said.label is not None:
            said = said._replace(label=said.label.masked_fill(filled.isnan().any(1), -1))
        return tuple(value for value in said if value is not None)

    def answers(self, scores: Tensor) -> Outputs:
        """What the head makes of the net's scores: labels and probabilities, or predictions in the target's units."""
        scores = scores.squeeze(-1) if scores.dim() == 2 and scores.shape[-1] == 1 else scores  # as of nn.Linear(d, 1)
        if self.regression:
            return Outputs(self.head.output(scores).double() * self.target_scale + self.target_shift)
        many, decided, chances = scores.dim() == 2, self.head.decide(scores), None
        if isinstance(self.head, LogisticHead):
            chances = scores.softmax(-1) if many else torch.stack([-scores, scores], -1).sigmoid()
        return Outputs(scores, decided if many else (decided + 1) // 2, chances)

    def scores(self, X: Data) -> Tensor:
        """The scores of the net, (N,) or (N, K), for what :meth:`outputs` accepts; of a regression the predictions."""
        return self.outputs(X).scores

    def predict(self, X: Data) -> list[Any]:
        """The labels, by name, for what :meth:`outputs` accepts; of a regression numbers, in the target's own units."""
        found = self.outputs(X)
        return found.scores.tolist() if found.label is None else [self.labels[k] for k in found.label.tolist()]

    def _by_name(self, X: Data) -> Data:
        """The features of a frame or of a list of dicts; all else as it is."""
        if not hasattr(X, "iloc") and not (isinstance(X, list) and X and isinstance(X[0], Mapping)):
            return X
        encoding = self.encoding or TableEncoder(tuple(map(Column, self.names)), None, self.labels)
        return encoding.transform(X)

    def _scaled_features(self, X: Data) -> Tensor:
        """Check, impute and scale raw features in float64; return them in the net's type."""
        if not is_sparse(X):
            kind: dict[str, Any] = {"dtype": torch.float64, "device": torch.device("cpu"), "convert": True}
            given = convert.features(X, width=self.width, finite=False, **kind)
            given = convert.features(given if self.encoding is None else self.encoding.impute(given), **kind)
            return convert.features((given - self.shift) / self.scale, dtype=self.dtype, convert=True)
        if self.means.dim() and X.shape[1] == self.width:  # which is imputed
            X = as_csr(X).copy()
            X.data = np.where(np.isnan(X.data), self.means.numpy()[X.indices], X.data)
        Z = convert.sparse_features(X, dtype=torch.float64, width=self.width)
        Z = Z if self.scaler is None else self.scaler.transform(Z)
        return convert.csr_tensor(convert.sparse_features(Z, dtype=self.dtype))

    @property
    def input_dtype(self) -> torch.dtype:
        """The type of raw features for :meth:`forward`: the net's; float64 if float32 would round some of them away.

        That is where ``|shift|`` > 2¹²·scale, as of a date in seconds, and outside 10⁻³⁰ to 10³⁰.
        """
        size = self.shift.abs()
        far = (size > _FAR * self.scale) | (size + self.scale > _LARGE) | (self.scale < 1 / _LARGE)
        return torch.float64 if far.any() else self.dtype

    def save(self, path: str | Path) -> None:
        """Write the model to one safetensors file, atomically and with a checksum.

        The weights have the names of the net's ``state_dict``, so that the file still loads into an ``nn.Linear`` (for
        scaled features); everything else is text in the file's metadata. Nothing in it is run when it is read.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     FittedModel(nn.Linear(2, 1), labels=("no", "yes")).save(f"{folder}/weights.safetensors")
            ...     FittedModel.load(folder).labels
            ('no', 'yes')
        """
        state = {"format": FORMAT, "torchperc": version("torchperc"), "net": described_net(self.net)}
        state["head"] = {"kind": type(self.head).__name__, **asdict(self.head)}
        state |= {name: getattr(self, name) for name in _TEXTS}
        scalers = {"scaler": self.scaler, "target_scaler": self.target_scaler}
        state |= {name: scaler and scaler.state() for name, scaler in scalers.items()}
        state["encoding"] = self.encoding and self.encoding.to_json()
        save_safetensors(self.net, path, {DESCRIPTION: json.dumps(state, allow_nan=False)})

    @classmethod
    def load(cls, path: str | Path) -> FittedModel:
        """Read a model that :meth:`save` wrote, by its file or by the folder of a run; others are a ``ValueError``."""
        path = model_file(Path(path))
        tensors, texts, has_checksum = read_checksummed(path)
        if DESCRIPTION not in texts:
            own = "load them with load_safetensors into a net of yours"
            raise ValueError(f"{path} holds weights but no description of a model; {own}, or name the {MODEL} of a run")
        try:
            state = json.loads(texts[DESCRIPTION])
            if not has_checksum:
                raise ValueError("it has lost its checksum, so another program has written it")
            if state["format"] != FORMAT:
                found = f"format {state['format']!r}, written by torchperc {state.get('torchperc')}"
                raise ValueError(f"it is of {found}, and this torchperc reads format {FORMAT}")
            with torch.device("meta"):  # sizes are compared before a net of those sizes takes memory
                net = as_net(state["net"])
            if differences := size_differences(tensors, net.state_dict()):
                raise ValueError(differences)
            net.to_empty(device="cpu").load_state_dict(tensors)
            kind = state["head"].pop("kind")
            head = _HEADS[check_choice("head", kind, tuple(_HEADS))](**state["head"])
            parts: dict[str, Any] = {name: state[name] for name in _TEXTS}
            parts |= {name: state[name] and Scaler.from_state(state[name]) for name in ("scaler", "target_scaler")}
            parts["encoding"] = state["encoding"] and TableEncoder.from_json(state["encoding"])
            return cls(net, head, **parts)
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, RecursionError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else error
            raise ValueError(f"{path} is not a usable model: {what}; learn or export it again") from None


def _buffers(scaler: Scaler | None) -> list[nn.Buffer]:
    values: Any = (0.0, 1.0) if scaler is None else (scaler.shift, scaler.scale)
    return [nn.Buffer(torch.as_tensor(value, dtype=torch.float64)) for value in values]


def _text(label: object) -> str:
    value = label.item() if isinstance(label, np.generic | Tensor) else label
    return shortest(value) if isinstance(value, float) else str(value)
