"""The interactive page as one HTML file: skeleton, styles, scripts and content; no network, no build step.

``page.html`` has the placeholders ``{{ title }}``, ``{{ style }}``, ``{{ content }}`` (JSON, described at the top of
``js/presets.js``, which reads it) and ``{{ scripts }}``. The scripts are joined in the order of :data:`SCRIPTS` into
one function, so that they share their names with each other and with nobody else.
"""

from __future__ import annotations

import json
import re
import tempfile
import webbrowser
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import torchperc
from torchperc._files import write_atomically
from torchperc.rules.dialect_table import DIALECTS

STYLES = ("style.css", "style_gradient.css")
_CORE = "elements transport rational random rule log proof net presets store plane"
_VIEWS = "panels view_rule view_compare view_proof steps view_gradient view_twolayer export main"
SCRIPTS = (*_CORE.split(), *_VIEWS.split())
"""The scripts in ``js/``, in the order in which they are read."""

PLACE = "{{ content }}"
"""Where the content belongs in ``page.html``."""

HEIGHT = 820
"""Pixels that the page has in a notebook."""

SANDBOX = "allow-scripts allow-downloads"
"""What the page may do in a notebook: run and save files, not touch the notebook."""

TITLE = "The perceptron, in your hands"
_CLOSING = re.compile(r"</(?:script|style)|<!--", re.IGNORECASE)  # what ends a block early


class Play:
    """The page with its content, to be saved, opened or shown.

    Example:
        >>> import tempfile
        >>> made = Play(content())
        >>> made.save(Path(tempfile.mkdtemp(), "play.html")).name
        'play.html'
    """

    def __init__(self, content: Mapping[str, Any], height: int = HEIGHT) -> None:
        self.content, self.height = content, height

    @property
    def html(self) -> str:
        """The page as text."""
        return filled(self.content)

    def save(self, path: str | Path) -> Path:
        """Write the page atomically to a file, which is all that is needed to show it anywhere."""
        write_atomically(Path(path), self.html.encode())
        return Path(path)

    def open(self) -> Path:
        """Write the page to a temporary folder, show it in the browser if there is one, and say where it is."""
        path = self.save(Path(tempfile.mkdtemp(prefix="torchperc-play-"), "play.html"))
        webbrowser.open(path.as_uri())
        return path

    def __repr__(self) -> str:
        return f"Play({len(self.html.encode()):,} bytes of HTML)"

    def _repr_html_(self) -> str:
        """For notebooks without anywidget: the page, which then cannot hand points back."""
        style = f"width: 100%; height: {self.height}px; border: 0"
        return f'<iframe srcdoc="{escape(self.html)}" sandbox="{SANDBOX}" style="{style}" title="torchperc"></iframe>'


def make_page(start: Mapping[str, Any] | None = None, recorded: Mapping[str, Any] | None = None, **options: Any) -> str:
    """The page as HTML; the same arguments give the same text. They are those of :func:`content`.

    Example:
        >>> page = make_page({"preset": "XOR"})
        >>> page.startswith("<!DOCTYPE html>"), "src=" in page
        (True, False)
    """
    return filled(content(start, recorded, **options))


def content(
    start: Mapping[str, Any] | None = None,
    recorded: Mapping[str, Any] | None = None,
    *,
    title: str = TITLE,
    widget: bool = False,
) -> dict[str, Any]:
    """What the page shows, as the object described at the top of ``js/presets.js``.

    Args:
        start: what to begin with: ``{"preset": id}``, or ``{"data": …, "conventions": …}``.
        recorded: a log to replay, see :func:`torchperc.lab.play.recorded.recording`.
        title: the heading.
        widget: tell the parent window of changes of the data, as in a notebook.

    Example:
        >>> content()["start"]
        {'preset': 'AND'}
    """
    return {
        "version": torchperc.__version__,
        "title": title,
        "presets": presets(),
        "dialects": dialects(),
        "start": dict(start or {"preset": "AND"}),
        "recorded": recorded,
        "widget": widget,
    }


def presets() -> list[dict[str, Any]]:
    """The examples that the page offers; points lie on a grid of 1/64, so that every sum of the rule is exact.

    Example:
        >>> presets()[0]["labels"]
        [0, 0, 0, 1]
    """
    listed: list[dict[str, Any]] = json.loads(source("presets.json"))
    return listed


def dialects() -> list[dict[str, Any]]:
    """The conventions of lecture notes and libraries, as the page reads them."""
    listed = []
    for row in DIALECTS:
        conventions = {"tie": row.tie, "biasStep": row.bias_step, "order": row.order, "lr": row.lr}
        about = {"id": row.id, "name": row.name, "remark": row.remark, "select": row.select}
        listed.append({**about, "conventions": conventions})
    return listed


def filled(content: Mapping[str, Any]) -> str:
    """The page as HTML around its content."""
    return frame(content["title"]).replace(PLACE, as_block(content), 1)


def frame(title: str) -> str:
    """The page as HTML with :data:`PLACE` where its content belongs."""
    pieces = {"title": escape(title), "style": _whole("\n".join(map(source, STYLES))), "scripts": script()}
    skeleton = source("page.html")
    return re.sub(r"\{\{ (title|style|scripts) \}\}", lambda found: pieces[found[1]], skeleton)


def as_block(content: object) -> str:
    """JSON that may stand in an HTML element: what could end the element or begin a comment is escaped.

    Example:
        >>> as_block({"name": "</script><!-- é"})
        '{"name":"\\\\u003c/script\\\\u003e\\\\u003c!-- é"}'
    """
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


@cache
def script() -> str:
    """The scripts as one function that is called at once."""
    joined = "\n".join(f"// {name}.js\n{_code(source(f'js/{name}.js'))}" for name in SCRIPTS)
    texts = as_block(json.loads(source("texts.json")))
    head = f'"use strict"; // with comments: torchperc/lab/play/js\nconst TEXTS = {texts};'
    return f"(() => {{\n{head}\n{_whole(joined)}}})();"


def _code(source: str) -> str:
    """A script without its lines of comments: they are for readers of the sources, and an eighth of the page."""
    return "".join(line for line in source.splitlines(keepends=True) if not line.lstrip().startswith("//"))


def _whole(text: str) -> str:
    """Refuse what would end its element early."""
    found = _CLOSING.search(text)
    if found:
        raise ValueError(f"a part of the page has {found[0]!r}, which ends its element; write it in two pieces")
    return text


@cache
def source(name: str) -> str:
    """The text of a file of this package, installed or not."""
    place = files("torchperc.lab.play").joinpath(name)
    return place.read_text("utf-8")
