"""Five small data sets out of the files that scikit-learn brings; it is not imported itself, which takes a second."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from torchperc._checks import require_packages

if TYPE_CHECKING:
    from torchperc.data.dataset import Dataset

_NUCLEUS = (
    "radius", "texture", "perimeter", "area", "smoothness", "compactness", "concavity", "concave points", "symmetry",
    "fractal dimension",
)  # fmt: skip
_WINE = "alcohol malic_acid ash alcalinity_of_ash magnesium total_phenols flavanoids nonflavanoid_phenols "
_WINE += "proanthocyanins color_intensity hue od280/od315_of_diluted_wines proline"
NAMES: dict[str, tuple[str, ...]] = {
    "iris": tuple(f"{part} {what} (cm)" for part, what in product(("sepal", "petal"), ("length", "width"))),
    "wine": tuple(_WINE.split()),
    "breast-cancer": tuple(form.format(name) for form in ("mean {}", "{} error", "worst {}") for name in _NUCLEUS),
    "digits": tuple(f"pixel_{row}_{column}" for row, column in product(range(8), repeat=2)),
    "diabetes": ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6"),
}
"""Names of the features of each data set, those that scikit-learn gives them."""
_FILES = {"iris": "iris.csv", "wine": "wine_data.csv", "breast-cancer": "breast_cancer.csv", "digits": "digits.csv.gz"}


def classic(name: str) -> Dataset:
    """A data set by its name; diabetes with features as they were measured, not scaled by all samples.

    Example:
        >>> classic("wine").X.shape, classic("diabetes").y[:3].tolist()
        (torch.Size([178, 13]), [151.0, 75.0, 141.0])
    """
    from torchperc.data.dataset import Dataset

    names = NAMES[name]
    if name == "diabetes":
        X, y = _file(name, "diabetes_data_raw.csv.gz", None), _file(name, "diabetes_target.csv.gz", None)
        return Dataset.of(X, y, names=names, name=name, task="regression", target="progression")
    if name == "digits":
        table = _file(name, _FILES[name])
        return Dataset.of(table[:, :-1], table[:, -1].astype(int), names=names, image_shape=(8, 8), name=name)
    table = _file(name, _FILES[name], skiprows=1)
    with _path(name, _FILES[name]).open() as lines:
        labels = np.array(next(lines).strip().split(",")[2:])
    return Dataset.of(table[:, :-1], labels[table[:, -1].astype(int)], names=names, name=name)


def _file(name: str, file: str, delimiter: str | None = ",", **options: Any) -> np.ndarray[Any, Any]:
    return np.loadtxt(_path(name, file), delimiter=delimiter, **options)


def _path(name: str, file: str) -> Path:
    require_packages(f"the data set {name!r}", "sklearn")
    found = find_spec("sklearn")
    assert found is not None
    assert found.origin is not None
    path = Path(found.origin).parent / "datasets" / "data" / file
    if not path.is_file():
        raise ValueError(f"the data set {name!r} is not where scikit-learn 1.6 and later keep it, {path}; update it")
    return path
