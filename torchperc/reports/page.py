"""Blocks, sections and the report: one self-contained HTML page, or a Markdown card."""

from __future__ import annotations

import base64
import io
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import jinja2
import numpy as np
from markupsafe import Markup

from torchperc._files import write_atomically
from torchperc.reports.text import visible

_DOTS = 160  # per inch, so that pictures are sharp on fine screens; they are shown at 100
_PACKAGES = ("torchperc", "torch", "numpy", "scipy", "matplotlib", "pytorch-lightning")
_MARKS = re.compile(r"([\\`*_\[\]|#~$])")
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
    """A PNG inside the page with its alternative text; in Markdown the caption replaces it."""

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
    level: int = 2  # 3 if it belongs to the section before it


@dataclass(frozen=True)
class Report:
    """The outcome in a sentence and the sections about it: one HTML page, or a model card in Markdown.

    Example:
        >>> report = Report("AND & <OR>", "Training error 0 %.", (Section("Data", (Text("4 samples"),)),))
        >>> report.card()[:52]
        '# AND &amp; &lt;OR&gt;\\n\\nTraining error 0 %.\\n\\n## Data'
        >>> "<title>AND &amp; &lt;OR&gt;</title>" in report.html(), "<script" in report.html()
        (True, False)
    """

    title: str
    lead: str
    sections: Sequence[Section]

    @classmethod
    def joined(cls, title: str, lead: str, reports: Sequence[Report], first: Section) -> Report:
        """Several reports on one page, each a section, after one that is about all of them."""
        joined = [first]
        for one in reports:
            joined.append(Section(one.title, (Text(one.lead),) if one.lead else ()))
            joined += [replace(section, level=3) for section in one.sections]
        return cls(title, lead, joined)

    def html(self) -> str:
        """The page: one file, no network. The same run gives the same page."""
        return self._render("page.html", _html)

    def card(self) -> str:
        """The same content in Markdown, captions in place of pictures."""
        return self._render("card.md", _markdown)

    def save(self, path: str | Path, card: str | Path | None = None) -> None:
        """Write the page, and the card if a file is named for it, each atomically."""
        write_atomically(Path(path), self.html().encode())
        if card is not None:
            write_atomically(Path(card), self.card().encode())

    def _render(self, template: str, finalize: Any) -> str:
        versions = [("Python", platform.python_version()), *((name, version(name)) for name in _PACKAGES)]
        return _templates(finalize).get_template(template).render(vars(self), versions=versions)


@cache
def _templates(finalize: Any) -> jinja2.Environment:
    loader = jinja2.FileSystemLoader(Path(__file__).with_name("templates"))
    made = jinja2.Environment(loader=loader, autoescape=True, finalize=finalize, trim_blocks=True, lstrip_blocks=True)
    made.filters["base64"] = lambda png: base64.b64encode(png).decode()
    made.filters["lines"] = lambda text: Markup(escape(visible(text.rstrip())))  # of code, kept as they are
    return made


def _html(value: Any) -> Any:
    """Text without control characters, which jinja2 escapes."""
    return visible(value) if type(value) is str else value


def _markdown(value: Any) -> Any:
    """Text whose every character means itself in Markdown, on one line; what a template calls safe as it is."""
    if type(value) is not str:
        return value
    safe = escape(visible(" ".join(value.split())), quote=False)
    return Markup(re.sub(r"^([-+]|\d+\.)(?= )", r"\\\1", _MARKS.sub(r"\\\1", safe)))
