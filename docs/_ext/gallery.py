"""The gallery: experiments run from a copy under docs/_build, so that what they write is not among the sources."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sphinx_gallery.scrapers import figure_rst

# those that draw; in the order of the page
SHOWN = (
    "pictures", "gates", "rule_against_gradient", "noisy_selection", "batch_against_stochastic", "lms_step_sizes",
    "learning_curves", "deep_xor", "tagging", "ocr_letters",
    "notes/note_a", "notes/note_b", "notes/note_c", "notes/note_d", "notes/note_e",
)  # fmt: skip


def copy_shown(experiments: Path, target: Path) -> Path:
    """Copy the scripts of the gallery, with what they import and the headers of the page; return where."""
    for name in (*(f"{name}.py" for name in SHOWN), "_common.py", "notes/_findings.py"):
        _copy(experiments / name, target / name)
    for header in experiments.rglob("GALLERY_HEADER.rst"):
        _copy(header, target / header.relative_to(experiments))
    return target


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def in_order(path: str) -> int:
    """Where a script stands on the page; after all others, what they import."""
    names = [Path(name).name for name in (*SHOWN, Path(path).stem)]
    return names.index(Path(path).stem)


def arguments(gallery_conf: Mapping[str, Any], script_vars: Mapping[str, Any]) -> list[str]:
    """Every experiment in its quick form, which the tests look at as well."""
    return ["--quick"]


def pictures(block: Any, block_vars: Mapping[str, Any], gallery_conf: Mapping[str, Any]) -> str:
    """The pictures that a script wrote to its folder in runs, or else what its function ``picture`` draws."""
    script, free = Path(block_vars["src_file"]), block_vars["image_path_iterator"]
    shown = []
    for path in sorted((script.parent / "runs").glob(f"{script.stem.replace('_', '[-_]')}/*.png")):
        shown.append(next(free))
        shutil.move(path, shown[-1])
    if script.parent.name == "notes":
        shown.append(next(free))
        block_vars["example_globals"]["picture"]().savefig(shown[-1], dpi=100)
    return str(figure_rst(shown, gallery_conf["src_dir"], script.stem.replace("_", " ")))
