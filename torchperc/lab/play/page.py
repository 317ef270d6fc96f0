"""The interactive page as one HTML file: skeleton, styles, scripts and content put together; no network, no build step.

``page.html`` has the placeholders ``{{ title }}``, ``{{ style }}``, ``{{ content }}`` (JSON, described at the top of
``js/presets.js``, which reads it) and ``{{ scripts }}``. The scripts are joined in the order of :data:`SCRIPTS` into
one function, so that they share their names with each other and with nobody else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

import torchperc
from torchperc.lab.play import presets

STYLES = ("style.css", "style_gradient.css")
SCRIPTS = (
    "texts",
    "texts_gradient",
    "elements",
    "rational",
    "random",
    "rule",
    "log",
    "proof",
    "descent",
    "twolayer",
    "presets",
    "store",
    "plane",
    "panels",
    "view_rule",
    "view_compare",
    "view_proof",
    "steps",
    "view_gradient",
    "view_twolayer",
    "export",
    "main",
)
"""The scripts in ``js/``, in the order in which they are read."""

CORE = ("rational", "random", "rule", "log", "proof", "descent", "twolayer")
"""Those that touch no document, so that Node can run them."""

PLACE = "{{ content }}"
"""Where the content belongs in ``page.html``."""

_SENTENCES = {
    "about.features": "The plane shows 2 of {count} features: {first} and {second}.",
    "about.samples": "{shown} of {count} samples were drawn at random.",
    "about.axes": "The axes are {first} and {second}.",
    "about.run": "A run with {count} features, seen in {first} and {second}: the boundary is exact where every other "
    "feature is at the mean of the samples. A point off that plane may lie on another side of the line than of the "
    "boundary. Mistakes, scores, errors and bounds are those of the run; the proof, and whatever the page runs itself, "
    "see two features only.",
    "about.unknown": "The log does not say how ties were decided and in which order the samples came.",
}
_TEXTS = ("texts", "texts_gradient")
_CLOSING = re.compile(r"</(?:script|style)|<!--", re.IGNORECASE)  # what ends a block early
_ENTRY = re.compile(r'^\s*("(?:[^"\\]|\\.)+"): ("(?:[^"\\]|\\.)*"),$', re.MULTILINE)


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
    title: str | None = None,
    texts: Mapping[str, str] | None = None,
    widget: bool = False,
) -> dict[str, Any]:
    """What the page shows, as the object described at the top of ``js/presets.js``.

    Args:
        start: what to begin with: ``{"preset": id}``, or ``{"data": …, "conventions": …}``.
        recorded: a log to replay, see :func:`torchperc.lab.play.recorded.recording`.
        title: the heading.
        texts: a translation, see :func:`english`; ``"lang"`` in it is the language, such as ``"de"``.
        widget: tell the parent window of changes of the data, as in a notebook.

    Example:
        >>> content()["start"]
        {'preset': 'AND'}
    """
    own = {**english(), **check_texts(texts or {})}
    made = {
        "version": torchperc.__version__,
        "presets": presets.presets(own),
        "dialects": presets.dialects(own),
        "start": dict(start or {"preset": "AND"}),
        "recorded": recorded,
        "language": own["lang"],
        "texts": {own["lang"]: dict(texts)} if texts else {},
        "widget": widget,
    }
    return made if title is None else {"title": title, **made}


def filled(content: Mapping[str, Any]) -> str:
    """The page as HTML around its content."""
    return frame(title_of(content)).replace(PLACE, as_block(content), 1)


def title_of(content: Mapping[str, Any]) -> str:
    """The heading of a page: its own, or that of every page in its language."""
    own: str = content.get("title") or {**english(), **content["texts"].get(content["language"], {})}["title"]
    return own


def frame(title: str) -> str:
    """The page as HTML with :data:`PLACE` where its content belongs."""
    pieces = {"title": escape(title), "style": _styles(), "scripts": script()}
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
def script(names: tuple[str, ...] = SCRIPTS) -> str:
    """The scripts as one function that is called at once; some of them by name, such as :data:`CORE`."""
    joined = "\n".join(f"// {name}.js\n{_code(source(f'js/{name}.js'))}" for name in names)
    return f'(() => {{\n"use strict"; // with comments: torchperc/lab/play/js\n{_whole(joined)}}})();'


@cache
def english() -> dict[str, str]:
    """Every text of the page by its key, for translation; ``"lang"`` is the language itself.

    Example:
        >>> english()["lang"]
        'en'
    """
    found: dict[str, str] = {"lang": "en"}
    for name in _TEXTS:
        found |= _entries(source(f"js/{name}.js"))
    return found | presets.texts() | _SENTENCES


def say(texts: Mapping[str, str] | None, key: str, **values: object) -> str:
    """A text by its key, translated if there is a translation, with its values put in.

    Example:
        >>> say(None, "about.axes", first="age", second="height")
        'The axes are age and height.'
    """
    text = (texts or {}).get(key) or english()[key]
    return re.sub(r"\{(\w+)\}", lambda found: str(values.get(found[1], found[0])), text)


def check_texts(texts: Mapping[str, Any], name: str = "texts") -> dict[str, str]:
    """Return a translation if each key is one of :func:`english` and each text names the same values, as in ``{n}``.

    Example:
        >>> check_texts({"lang": "de"})
        {'lang': 'de'}
    """
    known = english()
    if not isinstance(texts, Mapping):
        raise TypeError(f"{name} must be a dictionary of texts, found {type(texts).__name__}")
    for key, text in texts.items():
        if key not in known:
            raise ValueError(f"{name} has the key {key!r}, which the page does not know; see torchperc play --texts")
        if not isinstance(text, str):
            raise ValueError(f"{name} has {text!r} for {key!r}; give a text")
        if _values(text) - _values(known[key]):
            named = ", ".join(sorted(_values(text) - _values(known[key])))
            raise ValueError(f"{name} names {named} in {key!r}, where the page has no such value: {known[key]!r}")
    return dict(texts)


def _values(text: str) -> set[str]:
    return set(re.findall(r"\{\w+\}", text))


def _entries(source: str) -> Iterator[tuple[str, str]]:
    """The lines ``"key": "text",`` of a script."""
    return ((json.loads(key), json.loads(text)) for key, text in _ENTRY.findall(source))


def _code(source: str) -> str:
    """A script without its lines of comments: they are for readers of the sources, and an eighth of the page."""
    return "".join(line for line in source.splitlines(keepends=True) if not line.lstrip().startswith("//"))


def _styles() -> str:
    return _whole("\n".join(source(name) for name in STYLES))


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
