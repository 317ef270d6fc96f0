"""Blocks, sections and the report: one self-contained HTML page."""

from __future__ import annotations

import base64
import io
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import jinja2
import numpy as np

from torchperc._files import write_atomically
from torchperc.reports.text import visible

_DOTS = 160  # per inch, so that pictures are sharp on fine screens; they are shown at 100
_PACKAGES = ("torchperc", "torch", "numpy", "scipy", "matplotlib", "pytorch-lightning")
_NUMBER = re.compile(r"[+−-]?[\d.,]+(e[+−-]?\d+|/\d+)?( %)?|")


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    kind: ClassVar = "text"
    text: str


@dataclass(frozen=True)
class Code(Text):
    """Lines that are shown as they are."""

    kind: ClassVar = "code"


@dataclass(frozen=True)
class Table:
    """Rows of cells under a head; columns of numbers are set to the right.

    Example:
        >>> Table(("sample", "α"), (("1", "1/4"), ("2", "3/4"))).numeric
        [True, True]
    """

    kind: ClassVar = "table"
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    @property
    def numeric(self) -> list[bool]:
        """Whether each column holds numbers only."""
        return [all(_NUMBER.fullmatch(row[k]) for row in self.rows) for k in range(len(self.head))]


@dataclass(frozen=True)
class Picture:
    """A PNG inside the page, with its alternative text and its caption."""

    kind: ClassVar = "picture"
    png: bytes
    alt: str
    caption: str
    size: tuple[int, int]

    @classmethod
    def of(cls, figure: Any, alt: str, caption: str) -> Picture:
        """Draw a matplotlib figure, once; the same figure gives the same bytes."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from PIL import Image  # which matplotlib needs

        width, height = (round(100 * inches) for inches in figure.get_size_inches())
        figure.set_dpi(_DOTS)
        canvas: Any = FigureCanvasAgg(figure)
        canvas.draw()  # savefig would draw a second time, to find the layout first
        buffer = io.BytesIO()
        Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3]).save(buffer, "png", compress_level=3)
        return cls(buffer.getvalue(), alt, caption, (width, height))


Block = Text | Table | Picture


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it: texts, code, tables and pictures."""

    title: str
    blocks: Sequence[Block] = ()


@dataclass(frozen=True)
class Report:
    """The outcome in a sentence and the sections about it, as one HTML page.

    Example:
        >>> page = Report("AND & <OR>", "Training error 0 %.", (Section("Data", (Text("4 samples"),)),)).html()
        >>> "<title>AND &amp; &lt;OR&gt;</title>" in page, "<p>4 samples</p>" in page, "<script" in page
        (True, True, False)
    """

    title: str
    lead: str
    sections: Sequence[Section]

    def html(self) -> str:
        """The page: one file, no network. The same run gives the same page."""
        versions = [("Python", platform.python_version()), *((name, version(name)) for name in _PACKAGES)]
        return _template().render(vars(self), versions=versions, base64=base64.b64encode)

    def save(self, path: str | Path) -> None:
        """Write the page atomically."""
        write_atomically(Path(path), self.html().encode())


@cache
def _template() -> jinja2.Template:
    """The template, which escapes every text for HTML and writes out control characters."""
    safe: Any = {"autoescape": True, "finalize": lambda value: visible(value) if type(value) is str else value}
    loader = jinja2.FileSystemLoader(Path(__file__).with_name("templates"))
    made = jinja2.Environment(loader=loader, trim_blocks=True, lstrip_blocks=True, **safe)
    return made.get_template("page.html")
