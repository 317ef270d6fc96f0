"""A perceptron over whole tag sequences: scores, decoding in torch on any device, and its loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from torchperc import _checks as checks
from torchperc.nn import functional as tpf
from torchperc.nn.losses import _Loss
from torchperc.sequences.decoding import (
    ChainScores,
    batched,
    best_tags,
    checked_tags,
    decode,
    emissions,
    runner_up,
    score,
)
from torchperc.sequences.layout import PAD, Array, PaddedSequences, Sequences, split
from torchperc.sequences.log import kept_tags
from torchperc.sequences.rule import ChainRun, ChainStream, start_run
from torchperc.sequences.weights import ChainWeights

DECODES = ("viterbi", "greedy", "beam")


class ChainPerceptron(nn.Module):
    """A linear model of tag sequences, in which neighbouring tags see each other.

        s(x, y) = Σ_t w[y_t]·x_t + A[K, y_1] + Σ_{t>1} A[y_{t−1}, y_t] + e[y_T]

    with weight w (K, d), transition A (K + 1, K), its row K for the start, and end e (K,). There is no bias: a feature
    that is always 1 is one. The decision is the sequence of the largest score; of several, the one with the lowest last
    tag, then the lowest tag before it, and so on to the first. Weights start at zero.

    Args:
        features: d.
        tags: K.
        decode: ``"viterbi"`` finds the best of all sequences. ``"beam"`` keeps the ``beam_width`` best tags at each
            position, each with its best sequence so far; with a width of K or more it is the same. ``"greedy"``, a beam
            of width 1, decides tag after tag.
        beam_width: of the beam.
        device, dtype: as for any module.

    Shape:
        x (N, T, d) of numbers, or (N, T, F) of integers: the numbers of the features that are 1, −1 for none.
        Without N, one sequence.

    Example:
        >>> net = ChainPerceptron(2, 3)
        >>> _ = net.transition.data[0, 2].fill_(1), net.weight.data[0, 0].fill_(1)
        >>> net.predict(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        tensor([0, 2])
    """

    if TYPE_CHECKING:
        weight: nn.Parameter
        transition: nn.Parameter
        end: nn.Parameter

    def __init__(
        self,
        features: int,
        tags: int,
        *,
        decode: str = "viterbi",
        beam_width: int = 8,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.features = checks.whole("features", features, at_least=1)
        self.tags = checks.whole("tags", tags, at_least=2)
        if self.tags > 2**15:
            raise ValueError(f"tags={tags} is too many: decoding takes tags² steps per token; at most {2**15}")
        self.decode = checks.one_of("decode", decode, DECODES)
        self.beam_width = checks.whole("beam_width", beam_width, at_least=1)
        made: dict[str, Any] = {
            "dtype": checks.floating("dtype", dtype or torch.get_default_dtype()),
            "device": device,
        }
        self.weight = nn.Parameter(torch.zeros(self.tags, self.features, **made))
        self.transition = nn.Parameter(torch.zeros(self.tags + 1, self.tags, **made))
        self.end = nn.Parameter(torch.zeros(self.tags, **made))

    def extra_repr(self) -> str:
        """The sizes, for ``print(net)``."""
        width = f", beam_width={self.beam_width}" if self.decode == "beam" else ""
        return f"features={self.features}, tags={self.tags}, decode={self.decode!r}{width}"

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Set all weights to zero."""
        for values in self.parameters():
            values.zero_()

    @property
    def width(self) -> int:
        """How many tags are kept at each position; K for all."""
        return kept_tags(self.decode, self.beam_width, self.tags)

    def forward(self, x: Tensor | PaddedSequences, lengths: Tensor | None = None) -> ChainScores:
        """The scores of tags and pairs of tags.

        Args:
            x: a batch, or one sequence; see the class.
            lengths: of the sequences of a batch; by default all are T long.
        """
        if isinstance(x, PaddedSequences):
            x, lengths = x
        if not torch.compiler.is_compiling():
            self._check(x, lengths)
        if lengths is None:
            lengths = torch.full(x.shape[:-2], x.shape[-2], dtype=torch.int64, device=x.device)
        return ChainScores(emissions(x, self.weight), self.transition, self.end, lengths)

    def _check(self, x: Tensor, lengths: Tensor | None) -> None:
        if not isinstance(x, Tensor) or x.dim() not in (2, 3):
            found = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"x must be a tensor (N, T, d) or (T, d), found {found}")
        if not x.numel():
            raise ValueError(f"x is empty, found shape {tuple(x.shape)}; give at least one token")
        if x.is_floating_point():
            if x.shape[-1] != self.features:
                raise ValueError(f"x has {x.shape[-1]} features but {self.features} are needed, as the net has")
            if x.dtype != self.weight.dtype and not torch.is_autocast_enabled(x.device.type):
                raise TypeError(f"x is {x.dtype} but the net is {self.weight.dtype}; convert one of them")
        elif x.dtype == torch.bool or x.is_complex():
            raise TypeError(f"x must hold numbers, or feature numbers as integers, found {x.dtype}")
        elif int(x.max()) >= self.features or int(x.min()) < -1:
            wrong = ((x >= self.features) | (x < -1)).nonzero()[0].tolist()
            at = f"sequence {wrong[0]}, position {wrong[1]}" if x.dim() == 3 else f"position {wrong[0]}"
            raise ValueError(
                f"{at} has feature {int(x[tuple(wrong)])}; features run from 0 to {self.features - 1}, −1 means "
                "no feature"
            )
        if lengths is None:
            return
        if not isinstance(lengths, Tensor):
            raise TypeError(f"lengths must be a tensor of integers, found {type(lengths).__name__}")
        if lengths.shape != x.shape[:-2] or lengths.is_floating_point():
            given = f"{lengths.dtype} of shape {tuple(lengths.shape)}"
            raise ValueError(f"lengths must be integers of shape {tuple(x.shape[:-2])}, found {given}")
        if int(lengths.min()) < 1 or int(lengths.max()) > x.shape[-2]:
            raise ValueError(
                f"lengths run from {int(lengths.min())} to {int(lengths.max())}; they must lie between 1 and "
                f"T={x.shape[-2]}"
            )

    @staticmethod
    def score(scores: ChainScores, y: Tensor) -> Tensor:
        """s(x, y) of given tags: (N, T) → (N,); tags behind the end are ignored.

        Example:
            >>> net = ChainPerceptron(1, 2)
            >>> _ = net.transition.data.fill_(1)
            >>> net.score(net(torch.ones(3, 1)), torch.tensor([0, 1, 1]))
            tensor(3., grad_fn=<SqueezeBackward1>)
        """
        return score(scores, y)

    @torch.no_grad()
    def predict(
        self, x: Tensor | PaddedSequences | Sequences | Any, lengths: Tensor | None = None, *, n_jobs: int | None = None
    ) -> Any:
        """The best tags.

        Args:
            x: a batch (N, T, d) or (N, T, F), or one sequence, decoded in torch where it is; or :class:`Sequences` or a
                list of sequences, decoded by a compiled loop on the CPU, ``n_jobs`` threads at a time.
            lengths: of the sequences of a batch.
            n_jobs: so many threads; by default, and by −1, as many as torch may use.

        Returns:
            (N, T) int64 with −100 behind the end, (T,) for one sequence; for :class:`Sequences` and lists a list of
            tensors (T_i,).
        """
        if isinstance(x, Tensor | PaddedSequences):
            if n_jobs is not None:
                raise ValueError(f"n_jobs={n_jobs} is for Sequences; a batch is decoded in torch, so leave it out")
            return self.best(self(x, lengths))
        if lengths is not None:
            raise ValueError("lengths belong to a padded batch; sequences have theirs already")
        sequences = Sequences.of(x, width=self.features)
        return split(self.flat_predict(sequences, n_jobs=n_jobs), sequences)

    def best(self, scores: ChainScores) -> Tensor:
        """The best tags by scores: (N, T) int64 with −100 behind the end."""
        return best_tags(scores, self.width)

    def flat_predict(self, sequences: Sequences, *, n_jobs: int | None = None) -> Array:
        """The best tags of all sequences as one array (T,), by the compiled loop."""
        return ChainWeights.view(self).decode(sequences, self.width, n_jobs)

    def start_rule(self, trainer: Any, X: Any, y: Any, **options: Any) -> ChainRun:
        """A run of the rule, by which :class:`torchperc.RuleTrainer` learns chains."""
        return start_run(trainer, self, X, y, **options)

    def rule_stream(self) -> ChainStream:
        """What online learning by the rule keeps between calls."""
        return ChainStream()


class StructuredPerceptronLoss(_Loss):
    """The perceptron criterion of whole sequences, with a margin that grows with the number of wrong tags:

        L = max(0, max_{y′ ≠ y} s(x, y′) + m·H(y′, y) − s(x, y))

    H is the Hamming distance: the number of positions where the tags differ. The gradient is φ(x, ŷ) − φ(x, y) for the
    ŷ of the maximum, found by Viterbi whatever the net decodes by.

    Args:
        reduction: over sequences: ``"mean"``, ``"sum"`` or ``"none"``.
        margin: m; 0 is the classic criterion.
        tie: the gradient where another sequence has the score of y: ``"update"`` that of the other sequence,
            ``"strict"`` 0, ``"sign"`` that of the decision, which is 0 if it is y.

    Shape:
        scores as :class:`ChainPerceptron` gives them, y (N, T) or (T,); tags behind the end are ignored. Where the net
        was given no lengths, a sequence ends before the −100 behind its tags.

    Example:
        >>> net = ChainPerceptron(1, 2)
        >>> loss = StructuredPerceptronLoss(margin=1)(net(torch.ones(3, 1)), torch.tensor([0, 1, 1]))
        >>> loss.backward()
        >>> loss.item(), net.weight.grad.tolist()
        (3.0, [[1.0], [-1.0]])
    """

    _shown = ("reduction", "margin", "tie")

    def __init__(self, reduction: str = "mean", margin: float = 0.0, tie: str = "update") -> None:
        super().__init__(reduction)
        self.margin = checks.number("margin", margin, at_least=0)
        self.tie = tpf.tie_name(tie)
        if self.margin and self.tie == "sign":
            raise ValueError(f"margin={margin} has no effect with tie='sign'; use tie='update' or tie='strict'")

    def forward(self, scores: ChainScores, y: Tensor) -> Tensor:
        """The loss of scores against tags."""
        return self.against(scores, y, *self.violators(scores, y))

    def against(self, scores: ChainScores, y: Tensor, wrong: Tensor, counts: Tensor) -> Tensor:
        """The loss, if the :meth:`violators` are known."""
        own = score(scores, y)
        apart = ((wrong != y) & (wrong != PAD)).sum(-1).to(own.dtype) * self.margin
        loss = torch.where(counts, (score(scores, wrong) + apart - own).clamp(min=0), own * 0)
        # at 0 the clamp has no slope by itself; the difference has the one that the tie asks for
        if self.tie != "strict":
            kink = score(scores, wrong) - own
            loss = torch.where(counts & (loss == 0), kink - kink.detach(), loss)
        return loss if self.reduction == "none" else loss.mean() if self.reduction == "mean" else loss.sum()

    @torch.no_grad()
    def violators(self, scores: ChainScores, y: Tensor) -> tuple[Tensor, Tensor]:
        """The tags against which each sequence is compared, and whether that is a mistake."""
        given, tags, inside = checked_tags(batched(ChainScores(*(part.detach() for part in scores))), y)
        tags = torch.where(inside, tags, PAD)
        if self.margin:
            cost = torch.full_like(given.emission, self.margin).scatter(2, tags.clamp(min=0).unsqueeze(2), 0.0)
            given = given._replace(emission=given.emission + cost)
        found = decode(given, given.emission.shape[2])
        counts = (found.tags != tags).any(1)
        wrong = found.tags
        if self.tie == "update":
            other, tied = runner_up(given, found)
            wrong = torch.where(counts.unsqueeze(1), found.tags, other)
            counts = counts | tied
        elif self.tie == "strict":
            counts = counts & (found.value > score(given, tags))
        return (wrong, counts) if y.dim() == 2 else (wrong[0], counts[0])
