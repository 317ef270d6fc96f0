"""Made-up data with known answers: blobs a known margin apart, blobs with known errors, two moons, two circles."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchperc._checks import check_int, check_number


def separator(features: int = 2, seed: int = 0) -> tuple[Tensor, Tensor]:
    """The hyperplane u·x + b = 0 that :func:`separable_blobs` of the same ``features`` and ``seed`` is built around.

    u (d,) has ‖u‖ = 1; b is a scalar.

    Example:
        >>> u, b = separator(features=3, seed=1)
        >>> X, y = separable_blobs(50, features=3, margin=0.25, seed=1)
        >>> round((y * (X @ u + b)).min().item(), 12)
        0.25
    """
    direction, foot = _plane(check_int("features", features, at_least=1), _generator(seed))
    return direction, -direction @ foot


def separable_blobs(samples: int = 200, features: int = 2, margin: float = 0.5, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two Gaussian blobs X (N, d) whose largest possible margin is known: ``margin``, up to rounding.

    Around a random hyperplane (:func:`separator`) with unit normal u through p, each blob is moved until its point
    nearest to the plane stands at p ± margin·u, so that

        y·(u·x + b) ≥ margin for every sample, with equality for one sample of each class.

    These two face each other 2·margin apart, so no other hyperplane separates by more.

    Half of the ``samples`` are in each class, the odd one in +1.

    Example:
        >>> X, y = separable_blobs(101, margin=2.0)
        >>> X.shape, y.sum().item()
        (torch.Size([101, 2]), 1)
    """
    y = _labels(samples)
    features = check_int("features", features, at_least=1)
    margin = check_number("margin", margin, above=0)
    generator = _generator(seed)
    direction, foot = _plane(features, generator)
    X = torch.randn(len(y), features, generator=generator, dtype=torch.float64)
    for sign in (-1, 1):
        blob = X[y == sign]
        nearest = blob[(sign * blob @ direction).argmin()]
        X[y == sign] = blob - nearest + (foot + sign * margin * direction)
    return _shuffled(X, y, generator)


def noisy_blobs(samples: int = 200, features: int = 2, noise: float = 0.1, seed: int = 0) -> tuple[Tensor, Tensor]:
    """The samples of :func:`separable_blobs` with margin 0.5, a known number of them with the wrong label.

    In each class round(noise·N/2) labels, drawn at random, are turned round. So the classes keep their sizes, and
    the :func:`separator` of the same seed is wrong on exactly 2·round(noise·N/2) samples.

    Args:
        samples: N, half of them in each class, the odd one in +1.
        features: d.
        noise: the fraction of wrong labels, from 0 to 0.5, where the labels say nothing any more.
        seed: of the generator.

    Example:
        >>> X, y = noisy_blobs(200, noise=0.1, seed=3)
        >>> u, b = separator(seed=3)
        >>> (y * (X @ u + b) < 0).sum().item()
        20
    """
    noise = check_number("noise", noise, at_least=0)
    if noise > 0.5:
        raise ValueError(f"noise={noise} must be at most 0.5, the fraction at which labels say nothing any more")
    X, y = separable_blobs(samples, features, seed=seed)
    wrong = round(noise * len(y) / 2)  # in each class; the rows are in random order already, so the first will do
    turned = torch.cat([torch.nonzero(y == sign)[:wrong, 0] for sign in (-1, 1)])
    y[turned] = -y[turned]
    return X, y


def moons(samples: int = 200, noise: float = 0.1, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two half circles that reach into each other: no line separates them, a small net does.

    For t from 0 to π, (cos t, sin t) is −1 and (1 − cos t, ½ − sin t) is +1, each with Gaussian noise of the standard
    deviation ``noise``.

    Example:
        >>> X, y = moons(4, noise=0)
        >>> sorted(zip(X.round(decimals=6).abs().tolist(), y.tolist()))
        [([0.0, 0.5], 1), ([1.0, 0.0], -1), ([1.0, 0.0], -1), ([2.0, 0.5], 1)]
    """
    y = _labels(samples)
    below = (y == 1).sum().item()
    outer, inner = (torch.linspace(0, math.pi, int(n), dtype=torch.float64) for n in (len(y) - below, below))
    upper = torch.stack([outer.cos(), outer.sin()], dim=1)
    lower = torch.stack([1 - inner.cos(), 0.5 - inner.sin()], dim=1)
    return _blurred(torch.cat([upper, lower]), y, noise, seed)


def circles(samples: int = 200, noise: float = 0.05, factor: float = 0.5, seed: int = 0) -> tuple[Tensor, Tensor]:
    """A circle of radius 1 (−1) around one of radius ``factor`` (+1): separable by x₁² + x₂², by no line.

    Gaussian noise of the standard deviation ``noise`` is added to each feature.

    Example:
        >>> X, y = circles(100, noise=0, factor=0.3)
        >>> X[y == -1].norm(dim=1).mean().item(), round(X[y == 1].norm(dim=1).mean().item(), 12)
        (1.0, 0.3)
    """
    y = _labels(samples)
    factor = check_number("factor", factor, above=0)
    if factor >= 1:
        raise ValueError(f"factor={factor} must be below 1, the radius of the outer circle")
    rings = []
    for sign, radius in ((-1, 1.0), (1, factor)):
        count = int((y == sign).sum())
        angle = torch.arange(count, dtype=torch.float64) * (2 * math.pi / count)
        rings.append(radius * torch.stack([angle.cos(), angle.sin()], dim=1))
    return _blurred(torch.cat(rings), y, noise, seed)


def _labels(samples: int) -> Tensor:
    """The −1 first, then the +1, one more of them if N is odd."""
    samples = check_int("samples", samples, at_least=2)
    return torch.where(torch.arange(samples) < samples // 2, -1, 1)


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(check_int("seed", seed, at_least=0))


def _plane(features: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The first draws of a generator: a unit normal and a point of the hyperplane."""
    normal, foot = torch.randn(2, features, generator=generator, dtype=torch.float64)
    return normal / normal.norm(), foot


def _blurred(X: Tensor, y: Tensor, noise: float, seed: int) -> tuple[Tensor, Tensor]:
    noise, generator = check_number("noise", noise, at_least=0), _generator(seed)
    return _shuffled(X + noise * torch.randn(X.shape, generator=generator, dtype=X.dtype), y, generator)


def _shuffled(X: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    order = torch.randperm(len(y), generator=generator)
    return X[order], y[order]
