"""What a page is made of, and the page itself: HTML that needs nothing beside it, or Markdown of the same content."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from torchperc.reports.text import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

_DOTS = 160  # an inch, so that pictures are sharp on fine screens; they are shown at 100
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #59636e; --line: #d1d9e0; --back: #fff; --shade: #f5f7f9; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --soft: #9da7b1; --line: #3d444d; --back: #12161b; --shade: #1c222a; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 52rem; padding: 1.5rem 1rem 4rem; color: var(--ink); background: var(--back);
  font: 1rem/1.55 system-ui, "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0 0 .6rem; }
h2 { font-size: 1.3rem; margin: 2.4rem 0 .6rem; padding-top: .8rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
p { margin: .5rem 0; }
.lead { font-size: 1.1rem; }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; padding: 0; margin: .8rem 0 0; list-style: none; }
nav a { color: inherit; }
.wide { overflow-x: auto; margin: .8rem 0; }
figure .wide { margin: 0; }
table { border-collapse: collapse; font-size: .93rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--line);
  overflow-wrap: normal; min-width: 4rem; }
th { color: var(--soft); font-weight: 600; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td.number { white-space: nowrap; }
figure { margin: 1rem 0 1.4rem; }
img { display: block; max-width: 100%; height: auto; background: #fff; border-radius: 4px; }
figcaption { color: var(--soft); font-size: .9rem; margin-top: .4rem; }
pre { background: var(--shade); border: 1px solid var(--line); border-radius: 4px; padding: .7rem .9rem;
  white-space: pre-wrap; font: .85rem/1.45 ui-monospace, "DejaVu Sans Mono", monospace; }
@media (max-width: 34rem) {
  table { font-size: .88rem; }
  th, td { min-width: 0; padding-right: .5rem; }
  .cards thead { display: none; }
  .cards, .cards tbody, .cards tr { display: block; }
  .cards tr { padding: .5rem 0; border-bottom: 1px solid var(--line); }
  .cards td { display: flex; justify-content: space-between; gap: 1rem; padding: .1rem 0; border: 0;
    text-align: right; }
  .cards td:empty { display: none; }
  .cards td::before { content: attr(data-head); color: var(--soft); text-align: left; white-space: normal; }
}
"""
_CARDS = 4  # columns up to which a table stays a table on a narrow screen; of more, each row becomes a card
_SHRUNK = 0.5  # to which a picture is shrunk at most, so that it can be read; what is wider then can be moved
# whatever a reader's browser finds in the page, it is told to fetch nothing
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_MARKS = re.compile(r"([\\`*_\[\]|#~$])")
_NUMBER = re.compile(r"[+−-]?[\d.,]+(e[+−-]?\d+|/\d+)?( %)?")


@dataclass(frozen=True)
class Text:
    """A paragraph.

    Example:
        >>> Text("1 < 2").html(), Text("1 < 2").card()
        ('<p>1 &lt; 2</p>', '1 &lt; 2')
    """

    text: str

    def html(self) -> str:
        """As HTML."""
        return f"<p>{_html(self.text)}</p>"

    def card(self) -> str:
        """As Markdown."""
        return _plain(self.text)


@dataclass(frozen=True)
class Code:
    """Lines that are shown as they are.

    Example:
        >>> Code("lr: 1.0").html()
        '<pre><code>lr: 1.0</code></pre>'
    """

    text: str

    def html(self) -> str:
        """As HTML."""
        return f"<pre><code>{_html(self.text.rstrip())}</code></pre>"

    def card(self) -> str:
        """As Markdown, between fences longer than any inside; with HTML in it, as HTML that shows it."""
        if "<" in self.text:
            return self.html()
        runs = [len(run) for run in re.findall(r"`+", self.text)]
        fence = "`" * max([3, *(run + 1 for run in runs)])
        return f"{fence}\n{visible(self.text.rstrip())}\n{fence}"


@dataclass(frozen=True)
class Table:
    """Rows of cells under a head.

    Example:
        >>> print(Table(("sample", "α"), (("1", "1/4"),)).card())
        | sample | α |
        | --- | --- |
        | 1 | 1/4 |
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def html(self) -> str:
        """As HTML; columns of numbers are set to the right."""
        columns = zip(*self.rows, strict=True) if self.rows else [("no number",)] * len(self.head)
        right = (all(_NUMBER.fullmatch(cell) for cell in column if cell) for column in columns)
        marks = [' class="number"' if number else "" for number in right]
        head = "".join(f'<th scope="col"{mark}>{_html(name)}</th>' for mark, name in zip(marks, self.head, strict=True))
        kind = ' class="cards"' if len(self.head) > _CARDS else ""
        if kind:
            marks = [f'{mark} data-head="{_html(name)}"' for mark, name in zip(marks, self.head, strict=True)]
        rows = "".join(
            "<tr>" + "".join(f"<td{mark}>{_html(cell)}</td>" for mark, cell in zip(marks, row, strict=True)) + "</tr>\n"
            for row in self.rows
        )
        body = f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>"
        return f'<div class="wide"><table{kind}>\n{body}\n</table></div>'

    def card(self) -> str:
        """As Markdown."""
        lines = [self.head, ["---"] * len(self.head), *self.rows]
        cells = [[cell if number == 1 else _plain(cell) for cell in line] for number, line in enumerate(lines)]
        return "\n".join(f"| {' | '.join(line)} |" for line in cells)


@dataclass(frozen=True)
class Picture:
    """A PNG inside the page, with a text for those who do not see it; in Markdown the caption replaces it.

    Example:
        >>> Picture(b"", "a line", "The line rises from 1 to 2.", (7, 4)).card()
        '*Figure:* The line rises from 1 to 2.'
    """

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
        size = tuple(round(100 * inches) for inches in figure.get_size_inches())
        figure.set_dpi(_DOTS)
        canvas: Any = FigureCanvasAgg(figure)
        canvas.draw()  # savefig would draw a second time, to find the layout first
        buffer = io.BytesIO()
        Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3]).save(buffer, "png", compress_level=3)
        return cls(buffer.getvalue(), alt, caption, (size[0], size[1]))

    def html(self) -> str:
        """As HTML."""
        width, height = self.size
        source = f"data:image/png;base64,{base64.b64encode(self.png).decode()}"
        look = f'width="{width}" height="{height}" style="min-width: {_SHRUNK * width:.0f}px"'
        image = f'<div class="wide"><img {look} alt="{_html(self.alt)}" src="{source}"></div>'
        return f"<figure>{image}\n<figcaption>{_html(self.caption)}</figcaption></figure>"

    def card(self) -> str:
        """As Markdown: the caption."""
        return f"*Figure:* {_plain(self.caption)}"


Block = Text | Code | Table | Picture


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it; of level 3 if it belongs to the section before it.

    Example:
        >>> Section("Data", (Text("4 samples"),)).card()
        '## Data\\n\\n4 samples'
    """

    title: str
    blocks: Sequence[Block] = ()
    level: int = 2

    def html(self, anchor: str = "") -> str:
        """As HTML."""
        mark = f' id="{_html(anchor)}"' if anchor else ""
        head = f"<h{self.level}{mark}>{_html(self.title)}</h{self.level}>"
        return "\n".join((head, *(block.html() for block in self.blocks)))

    def card(self) -> str:
        """As Markdown."""
        return "\n\n".join((f"{'#' * self.level} {_plain(self.title)}", *(block.card() for block in self.blocks)))


def report_page(title: str, sections: Sequence[Section], lead: str = "") -> str:
    """One HTML page that needs no other file and no network; every text is shown as text, whatever is in it.

    Example:
        >>> page = report_page("AND & <OR>", [Section("Data", [Text("4 samples")])])
        >>> "<title>AND &amp; &lt;OR&gt;</title>" in page, "http:" in page, "<script" in page
        (True, False, False)
    """
    anchors = [f"s{number}" for number in range(1, len(sections) + 1)]
    links = "".join(
        f'<li><a href="#{anchor}">{_html(section.title)}</a></li>'
        for anchor, section in zip(anchors, sections, strict=True)
        if section.level == 2
    )
    body = "\n".join(section.html(anchor) for anchor, section in zip(anchors, sections, strict=True))
    first = f'<p class="lead">{_html(lead)}</p>\n' if lead else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{_html(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<header>
<h1>{_html(title)}</h1>
{first}<nav aria-label="Contents"><ul>{links}</ul></nav>
</header>
<main>
{body}
</main>
</body>
</html>
"""


def report_card(title: str, sections: Sequence[Section], lead: str = "") -> str:
    """The same content in Markdown, with captions in place of pictures: a model card.

    Example:
        >>> report_card("AND", [Section("Data", [Text("4 samples")])], "SEPARATED")
        '# AND\\n\\nSEPARATED\\n\\n## Data\\n\\n4 samples\\n'
    """
    parts = [f"# {_plain(title)}", *([_plain(lead)] if lead else []), *(section.card() for section in sections)]
    return "\n\n".join(parts) + "\n"


def _html(text: str) -> str:
    """Text whose every character means itself in HTML."""
    return escape(visible(text))


def _plain(text: str) -> str:
    """Text whose every character means itself in Markdown, on one line."""
    safe = escape(visible(" ".join(text.split())), quote=False)
    return re.sub(r"^([-+]|\d+\.)(?= )", r"\\\1", _MARKS.sub(r"\\\1", safe))
