"""``torchperc export``: the model of a run as a file for other programs, run against torch before it is written."""

from __future__ import annotations

import argparse
from pathlib import Path

from torchperc.reports.text import visible

_FILES = {"onnx": "model.onnx", "safetensors": "model.safetensors", "torch": "model.pt2"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Writes the model of a run, from raw features to labels, as one file: ONNX (for onnxruntime), torch.export "
        "(for torch alone) or safetensors (weights, with the description that torchperc reads). Each file is run "
        "against torch on a thousand samples first and is written atomically, ONNX and torch.export with a .sha256 "
        "file beside them. --check FILE compares such a file with its digest."
    )
    parser.add_argument("run", metavar="RUN", nargs="?", help="the folder of a run, or its weights.safetensors")
    parser.add_argument("--to", choices=tuple(_FILES), help="kind of file")
    parser.add_argument(
        "-o", "--out", metavar="FILE", help="the file (default: model.onnx, model.pt2 or model.safetensors in the run)"
    )
    parser.add_argument("--check", metavar="FILE", help="check that an exported file is as it was written; do no more")


def run(arguments: argparse.Namespace) -> None:
    """Read the model, write the file, say how it was checked; or check a file that was written."""
    from torchperc.model.export import check_file, save_exported, save_model, save_onnx
    from torchperc.model.fitted import FittedModel

    if arguments.check is not None:
        if (arguments.run, arguments.to, arguments.out) != (None, None, None):
            raise ValueError(f"--check={arguments.check} stands alone; leave out RUN, --to and --out")
        print(f"{arguments.check}: {check_file(arguments.check)}")
        return
    lost = [name for name, value in (("RUN", arguments.run), ("--to", arguments.to)) if value is None]
    if lost:
        raise ValueError(f"the following arguments are required: {', '.join(lost)}")
    source = Path(arguments.run)
    folder = source if source.is_dir() else source.parent
    target = folder / _FILES[arguments.to] if arguments.out is None else Path(arguments.out)
    model = FittedModel.load(source)
    if target.is_dir() or not target.parent.is_dir():
        raise ValueError(f"--out={target} is not a file in a folder that exists; make the folder first")
    write = {"onnx": save_onnx, "safetensors": save_model, "torch": save_exported}[arguments.to]
    checked = write(model, target)
    said = f"{type(model.net).__name__} of {source}: {target}, {checked.size:,} bytes; {checked.sentence}"
    print(visible(said))
