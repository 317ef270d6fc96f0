"""What a page is made of, and the report: HTML that needs nothing beside it, or Markdown of the same content."""

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
from typing import TYPE_CHECKING, Any, ClassVar

import jinja2
import numpy as np
from markupsafe import Markup

from torchperc._files import write_atomically
from torchperc.reports.text import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

_DOTS = 160  # per inch, so that pictures are sharp on fine screens; they are shown at 100
_PACKAGES = ("torchperc", "torch", "numpy", "scipy", "matplotlib", "pytorch-lightning")
_MARKS = re.compile(r"([\\`*_\[\]|#~$])")
_NUMBER = re.compile(r"[+−-]?[\d.,]+(e[+−-]?\d+|/\d+)?( %)?")


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    kind: ClassVar = "text"
    text: str


@dataclass(frozen=True)
class Code:
    """Lines that are shown as they are."""

    kind: ClassVar = "code"
    text: str


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
        columns = zip(*self.rows, strict=True) if self.rows else [("no number",)] * len(self.head)
        return [all(_NUMBER.fullmatch(cell) for cell in column if cell) for column in columns]


@dataclass(frozen=True)
class Picture:
    """A PNG inside the page, with a text for those who do not see it; in Markdown the caption replaces it."""

    kind: ClassVar = "picture"
    png: bytes
    alt: str
    caption: str
    size: tuple[int, int]

    @classmethod
    def of(cls, figure: Figure | SubFigure, alt: str, caption: str) -> Picture:
        """Draw a matplotlib figure, once; the same figure gives the same bytes."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as WholeFigure
        from PIL import Image  # which matplotlib needs

        assert isinstance(figure, WholeFigure)
        width, height = (round(100 * inches) for inches in figure.get_size_inches())
        figure.set_dpi(_DOTS)
        canvas: Any = FigureCanvasAgg(figure)
        canvas.draw()  # savefig would draw a second time, to find the layout first
        buffer = io.BytesIO()
        Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3]).save(buffer, "png", compress_level=3)
        return cls(buffer.getvalue(), alt, caption, (width, height))

    @property
    def base64(self) -> str:
        """The PNG as text."""
        return base64.b64encode(self.png).decode()


Block = Text | Code | Table | Picture


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
        >>> report = Report("AND", "Training error 0 %.", (Section("Data", (Text("4 samples"),)),))
        >>> report.card()[:43]
        '# AND\\n\\nTraining error 0 %.\\n\\n## Data\\n\\n4 samp'
    """

    title: str
    lead: str
    sections: tuple[Section, ...]

    @classmethod
    def joined(cls, title: str, lead: str, reports: Sequence[Report], first: Sequence[Section] = ()) -> Report:
        """Several reports on one page, each a section, after sections that are about all of them.

        Example:
            >>> one = Report("a", "", (Section("Data"),))
            >>> [(section.title, section.level) for section in Report.joined("both", "", [one, one]).sections]
            [('a', 2), ('Data', 3), ('a', 2), ('Data', 3)]
        """
        joined = list(first)
        for one in reports:
            joined.append(Section(one.title, (Text(one.lead),) if one.lead else ()))
            joined += [replace(section, level=3) for section in one.sections]
        return cls(title, lead, tuple(joined))

    def html(self) -> str:
        """The page: one file, no network. The same run gives the same page."""
        return _render("page.html", **vars(self), versions=_versions())

    def card(self) -> str:
        """The same content in Markdown, captions in place of pictures."""
        return _render("card.md", **vars(self), versions=_versions())

    def save(self, path: str | Path, card: str | Path | None = None) -> None:
        """Write the page, and the card if a file is named for it, each atomically."""
        write_atomically(Path(path), self.html().encode())
        if card is not None:
            write_atomically(Path(card), self.card().encode())


def report_page(title: str, sections: Sequence[Section], lead: str = "") -> str:
    """One HTML page that needs no other file and no network; every text is shown as text, whatever is in it.

    Example:
        >>> page = report_page("AND & <OR>", [Section("Data", [Text("4 samples")])])
        >>> "<title>AND &amp; &lt;OR&gt;</title>" in page, "http:" in page, "<script" in page
        (True, False, False)
    """
    return _render("page.html", title=title, sections=sections, lead=lead, versions=())


def _versions() -> list[tuple[str, str]]:
    """The versions that made the page."""
    return [("Python", platform.python_version()), *((name, version(name)) for name in _PACKAGES)]


def _render(name: str, **content: Any) -> str:
    return _templates(_markdown if name.endswith(".md") else _html).get_template(name).render(content)


@cache
def _templates(finalize: Any) -> jinja2.Environment:
    loader = jinja2.FileSystemLoader(Path(__file__).with_name("templates"))
    made = jinja2.Environment(loader=loader, autoescape=True, finalize=finalize, trim_blocks=True, lstrip_blocks=True)
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
