"""``torchperc export``: the model of a run as a file for other programs, run against torch before it is written."""

from __future__ import annotations

import argparse
from pathlib import Path

from torchperc.cli import inputs

_FILES = {"onnx": "model.onnx", "safetensors": "model.safetensors", "torch": "model.pt2"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Writes the model of a run, from raw features to labels, as one file: ONNX (for onnxruntime), torch.export "
        "(for torch alone) or safetensors (weights, with the description that torchperc reads). Each file is run "
        "against torch on a thousand samples first and is written atomically."
    )
    parser.add_argument("run", metavar="RUN", help="the folder of a run, or its weights.safetensors")
    parser.add_argument("--to", choices=tuple(_FILES), required=True, help="kind of file")
    out = "the file (default: model.onnx, model.pt2 or model.safetensors in the run)"
    parser.add_argument("-o", "--out", metavar="FILE", help=out)


def run(arguments: argparse.Namespace) -> None:
    """Read the model, write the file, say how it was checked."""
    from torchperc.model.places import model_file

    source = Path(arguments.run)
    folder = source if source.is_dir() else source.parent
    model_file(source)  # what is not there is refused before torch is imported
    from torchperc.model.export import save_exported, save_model
    from torchperc.model.fitted import FittedModel
    from torchperc.model.onnx import save_onnx

    model = FittedModel.load(source)
    target = inputs.output_file(arguments.out or folder / _FILES[arguments.to])
    checked = {"onnx": save_onnx, "safetensors": save_model, "torch": save_exported}[arguments.to](model, target)
    inputs.say(f"{type(model.net).__name__} of {source}: {target}, {checked.size:,} bytes; {checked.sentence}")
