"""How the documentation site is built: `make docs` writes it to docs/_build/html."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from jupyter_cache import get_cache
from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

import gallery
import page_setup

import torchperc

BUILD, EXPERIMENTS = HERE / "_build", HERE.parent / "experiments"
# what the kernels of pages find: the command `torchperc`, the modules that pages import, and settings of their own
SEEN = {"PATH": [Path(sys.executable).parent], "PYTHONPATH": [HERE / "_ext", EXPERIMENTS / "notes"]}
for name, folders in SEEN.items():
    os.environ[name] = os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get(name)])])
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # pages run side by side; more threads only wait
os.environ["IPYTHONDIR"] = str(BUILD / ".ipython")
page_setup.write_kernel_settings(BUILD / ".ipython" / "profile_default" / "ipython_kernel_config.py")

project = "torchperc"
author = "The torchperc maintainers"
copyright = f"2026, {author}"
version = release = torchperc.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "public_names",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "gallery/**/*.ipynb", "gallery/*.ipynb"]
nitpicky = True

# Pages. Each block of code runs while the site is built, in a kernel of its page: what it prints is what is shown.
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb", ".rst": "restructuredtext"}
myst_enable_extensions = ["colon_fence", "deflist", "substitution"]
myst_heading_anchors = 3
nb_execution_mode = "cache"
nb_execution_cache_path = str(BUILD / ".jupyter_cache")
get_cache(nb_execution_cache_path).list_cache_records()  # made here: two pages that are read at once would both make it
nb_execution_timeout = 120
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_merge_streams = True

# API reference, from the docstrings
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_preserve_defaults = True
autosummary_generate = False
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = ["Shape"]
python_maximum_signature_line_length = 100
toc_object_entries_show_parents = "hide"

# The gallery runs the experiments and shows what they print and draw
os.environ["COLUMNS"] = "100"  # for the tables of rich
sphinx_gallery_conf = {
    "examples_dirs": str(gallery.copy_shown(EXPERIMENTS, BUILD / "experiments")),
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"(^|/)_\w+\.py$",
    "image_scrapers": ("gallery.pictures",),
    "reset_argv": "gallery.arguments",
    "within_subsection_order": "gallery.in_order",
    "reset_modules": (),
    "download_all_examples": False,
    "write_computation_times": False,
    "show_signature": False,
    "show_memory": False,
    "parallel": True,
}

html_theme = "pydata_sphinx_theme"
html_title = "torchperc"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
html_context = {"default_mode": "auto"}
# pages that are a section by themselves have nothing to list beside them
html_sidebars = {
    page: []
    for page in ("index", "getting-started", "all-of-torchperc", "benchmarks", "faq", "glossary", "extend", "changelog")
}
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
copybutton_exclude = ".linenos, .gp, .go"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


# Notebooks are shown with the outputs that are kept in them; `make test-all` runs them
NOTEBOOKS = HERE / "notebooks"
shutil.rmtree(NOTEBOOKS, ignore_errors=True)
shutil.copytree(HERE.parent / "notebooks", NOTEBOOKS, ignore=shutil.ignore_patterns("*.md", "*.toml", ".*", "runs"))
nb_execution_excludepatterns = ["notebooks/*"]


def write_play(app: Sphinx, error: Exception | None) -> None:
    """Write the interactive page beside the front page, which shows it in a frame."""
    if error is None:
        page = Path(app.outdir) / "play.html"
        subprocess.run([sys.executable, "-m", "torchperc", "play", "--out", str(page)], check=True)


def setup(app: Sphinx) -> None:
    app.connect("build-finished", write_play)
