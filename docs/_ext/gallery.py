"""The gallery: experiments run from a copy under docs/_build, so that what they write is not among the sources."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sphinx_gallery.scrapers import figure_rst

# those that draw; in the order of the page
SHOWN = (
    "pictures", "gates", "rule_against_gradient", "noisy_selection", "rule_family", "batch_against_stochastic",
    "lms_step_sizes", "learning_curves", "deep_xor", "built_networks", "tagging", "ocr_letters",
)  # fmt: skip


def copy_shown(experiments: Path, target: Path) -> Path:
    """Copy the scripts of the gallery, with what they import and the headers of the page; return where."""
    target.mkdir(parents=True, exist_ok=True)
    for name in (*(f"{name}.py" for name in SHOWN), "_common.py", "GALLERY_HEADER.rst"):
        shutil.copy2(experiments / name, target / name)
    return target


def in_order(path: str) -> int:
    """Where a script stands on the page; after all others, what they import."""
    return (*SHOWN, Path(path).stem).index(Path(path).stem)


def arguments(gallery_conf: Mapping[str, Any], script_vars: Mapping[str, Any]) -> list[str]:
    """Every experiment in its quick form, which the tests look at as well."""
    return ["--quick"]


def pictures(block: Any, block_vars: Mapping[str, Any], gallery_conf: Mapping[str, Any]) -> str:
    """The pictures that a script wrote to its folder in runs."""
    script, free = Path(block_vars["src_file"]), block_vars["image_path_iterator"]
    shown = []
    for path in sorted((script.parent / "runs").glob(f"{script.stem.replace('_', '[-_]')}/*.png")):
        shown.append(next(free))
        shutil.move(path, shown[-1])
    return str(figure_rst(shown, gallery_conf["src_dir"], script.stem.replace("_", " ")))
