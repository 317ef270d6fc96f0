"""The interactive page as one HTML file: skeleton, styles, scripts and content; no network, no build step.

``page.html`` has the placeholders ``{{ title }}``, ``{{ style }}``, ``{{ content }}`` (JSON, see :func:`content`) and
``{{ scripts }}``. The scripts are joined in the order of :data:`SCRIPTS` into one function, so that they share their
names with each other and with nobody else.
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
from torchperc.rules.dialects import ALL as DIALECTS

_CORE = "elements rational random rule log proof net store transport plane charts panels steps export"
_VIEWS = "view_rule view_compare view_proof view_gradient view_twolayer main"
SCRIPTS = (*_CORE.split(), *_VIEWS.split())
"""The scripts in ``js/``, in the order in which they are read."""

HEIGHT = 820
"""Pixels that the page has in a notebook."""

SANDBOX = "allow-scripts allow-downloads"
"""What the page may do in a notebook: run and save files, not touch the notebook."""

TITLE = "The perceptron, in your hands"


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
        return frame(self.content["title"]).replace("{{ content }}", as_block(self.content), 1)

    def save(self, path: str | Path) -> Path:
        """Write the page atomically to one self-contained file."""
        write_atomically(Path(path), self.html.encode())
        return Path(path)

    def open(self) -> Path:
        """Write the page to a temporary folder, open it in the browser if there is one, return its path."""
        path = self.save(Path(tempfile.mkdtemp(prefix="torchperc-play-"), "play.html"))
        webbrowser.open(path.as_uri())
        return path

    def __repr__(self) -> str:
        return f"Play({len(self.html.encode()):,} bytes of HTML)"

    def _repr_html_(self) -> str:
        """For notebooks without anywidget: the page, which then cannot hand points back."""
        style = f"width: 100%; height: {self.height}px; border: 0"
        return f'<iframe srcdoc="{escape(self.html)}" sandbox="{SANDBOX}" style="{style}" title="torchperc"></iframe>'


def content(
    start: Mapping[str, Any] | None = None, recorded: Mapping[str, Any] | None = None, *, title: str = TITLE
) -> dict[str, Any]:
    """What the page shows, as JSON.

    Points of its examples lie on a grid of 1/64, so that every sum of the rule is exact.

    Args:
        start: what to begin with: ``{"preset": id}``, or ``{"data": {"points", "labels", "classes", "names"?,
            "classNames"?, "description"?}, "conventions"?: …, "overlays"?: {"pocket": True}, "view"?: "rule"}``.
        recorded: a log to replay, see :func:`torchperc.lab.play.data.recording`.
        title: the heading.

    Example:
        >>> content()["start"], content()["presets"][0]["labels"]
        ({'preset': 'AND'}, [0, 0, 0, 1])
    """
    listed = json.loads(source("presets.json"))
    return {
        "version": torchperc.__version__,
        "title": title,
        "presets": listed["examples"],
        "starts": listed["starts"],
        "dialects": dialects(),
        "start": dict(start or {"preset": "AND"}),
        "recorded": recorded,
        "widget": False,  # whether to tell the parent window of changes of the data
    }


def dialects() -> list[dict[str, Any]]:
    """The conventions of lecture notes and libraries, as the page reads them."""
    listed = []
    for row in DIALECTS:
        conventions = {"tie": row.tie, "biasStep": row.bias_step, "order": row.order, "lr": row.lr}
        about = {"id": row.id, "name": row.name, "remark": row.remark, "select": row.select}
        listed.append({**about, "conventions": conventions})
    return listed


def frame(title: str) -> str:
    """The page as HTML with ``{{ content }}`` where its content belongs."""
    pieces = {"title": escape(title), "style": source("style.css"), "scripts": script()}
    return re.sub(r"\{\{ (title|style|scripts) \}\}", lambda found: pieces[found[1]], source("page.html"))


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
    joined = "\n".join(f"// {name}.js\n" + re.sub(r"(?m)^ *//.*\n", "", source(f"js/{name}.js")) for name in SCRIPTS)
    texts = as_block(json.loads(source("texts.json")))
    head = f'"use strict"; // with comments: torchperc/lab/play/js\nconst TEXTS = {texts};'
    return f"(() => {{\n{head}\n{joined}}})();"


@cache
def source(name: str) -> str:
    """The text of a file of this package, installed or not."""
    place = files("torchperc.lab.play").joinpath(name)
    return place.read_text("utf-8")
