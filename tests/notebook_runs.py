"""Run notebooks and keep their outputs: ``python tests/notebook_runs.py [FILE ...]``, by default all of ``notebooks/``.

A run has its own folder, a fresh kernel and the variable ``CI``, which tells a cell that nobody is looking. Solutions of
exercises are code in a ``<details>`` block of a Markdown cell, one per cell. They run in their place with a copy of the
names, so that they change nothing for the cells below, and what they print goes into the ``text`` block behind the code.
"""

from __future__ import annotations

import base64
import io
import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from PIL import Image

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
WIDGET = "application/vnd.jupyter.widget-view+json"
SOLUTION = re.compile(r"(<details>.*?^```python\n)(.*?)(^```\n\n^```text\n)(.*?)(^```$)", re.DOTALL | re.MULTILINE)


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def run(notebook: NotebookNode) -> NotebookNode:
    """The notebook with the outputs of a run, its solutions' too, without what changes from run to run."""
    ready = nbformat.from_dict({**notebook, "cells": _with_solutions(notebook.cells)})
    with tempfile.TemporaryDirectory() as folder:
        place = {"metadata": {"path": folder}}
        client = NotebookClient(ready, timeout=900, kernel_name="python3", coalesce_streams=True, resources=place)
        client.execute(env=_environment(folder))
    return nbformat.from_dict({**notebook, "metadata": _metadata(), "cells": _cleaned(ready.cells)})


def outputs(cell: NotebookNode) -> list[tuple[str, str]]:
    """What a reader sees below a cell: kind and text of each output. Of a picture only that it is there."""
    seen = []
    for output in cell.get("outputs", ()):
        if output.output_type == "stream":
            seen.append((output.name, output.text))
        elif output.output_type == "error":
            seen.append(("error", output.evalue))
        else:
            picture = any(kind.startswith("image/") for kind in output.data)
            seen.append(("picture", "") if picture else ("result", output.data.get("text/plain", "")))
    return seen


def _environment(folder: str) -> dict[str, str]:
    """Nobody looks, sums are those of one CPU, nobody's settings matter, and torchperc is that of this checkout."""
    own = {"CI": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "IPYTHONDIR": folder}
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    kept = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    return {**kept, **own, "PYTHONPATH": paths}


def _with_solutions(cells: list[NotebookNode]) -> list[NotebookNode]:
    ready = []
    for cell in cells:
        ready.append(nbformat.from_dict(cell))
        if cell.cell_type == "markdown" and (found := SOLUTION.search(cell.source)):
            code = f"exec({found[2]!r}, dict(globals()))"
            ready.append(nbformat.v4.new_code_cell(code, metadata={"solution": True}))
    return ready


def _cleaned(cells: list[NotebookNode]) -> list[NotebookNode]:
    """Outputs of solutions moved into their text, all others as they are kept."""
    kept: list[NotebookNode] = []
    count = 0
    for cell in cells:
        if cell.metadata.get("solution"):
            printed = "".join(output.text for output in cell.outputs if output.output_type == "stream")
            replaced = SOLUTION.sub(
                lambda found, text=printed: found[1] + found[2] + found[3] + text + found[5], kept[-1].source
            )
            kept[-1].source = replaced
            continue
        if cell.cell_type == "code":
            count += 1
            cell.metadata.pop("execution", None)
            cell.execution_count = count
            cell.outputs = [output for output in cell.outputs if WIDGET not in output.get("data", {})]
            for output in cell.outputs:
                if output.output_type == "execute_result":
                    output.execution_count = count
                if "image/png" in output.get("data", {}):
                    output.data["image/png"] = _small(output.data["image/png"])
        kept.append(cell)
    return kept


def _small(picture: str) -> str:
    """A PNG in 128 colours of its own, in a third of the bytes; charts have no more."""
    image, small = Image.open(io.BytesIO(base64.b64decode(picture))), io.BytesIO()
    image.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return base64.b64encode(small.getvalue()).decode()


def _metadata() -> dict[str, object]:
    spec = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"kernelspec": spec, "language_info": {"name": "python", "pygments_lexer": "ipython3"}}


def main(names: list[str]) -> None:
    for path in map(Path, names) if names else NOTEBOOKS:
        nbformat.write(run(read(path)), path)
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
