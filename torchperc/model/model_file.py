"""Where the model of a run is; needs no torch, so that what is not there is refused at once."""

from __future__ import annotations

from pathlib import Path

MODEL = "weights.safetensors"  # the name of the model's file in the folder of a run


def model_file(path: Path) -> Path:
    """The file of a model, given by itself or by the folder of a run.

    Example:
        >>> model_file(Path("no/such/folder"))
        Traceback (most recent call last):
        ValueError: no such run or model: no/such/folder; name the folder of a run, or its weights.safetensors
    """
    if path.is_dir():
        if not (path / MODEL).is_file():
            raise ValueError(f"{path} has no {MODEL}; `torchperc fit` and `torchperc learn` write one when they finish")
        return path / MODEL
    if not path.is_file():
        raise ValueError(f"no such run or model: {path}; name the folder of a run, or its {MODEL}")
    return path
