"""The page with its content as an object: saved to a file, opened in the browser, shown in a notebook."""

from __future__ import annotations

import tempfile
import webbrowser
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from torchperc._atomic import write_whole
from torchperc.lab.play import page

HEIGHT = 820
"""Pixels that the page has in a notebook."""

SANDBOX = "allow-scripts allow-downloads"
"""What the page may do in a notebook: run and save files, not touch the notebook."""


class Play:
    """The page with its content, to be saved, opened or shown.

    Example:
        >>> import tempfile
        >>> made = Play(page.content())
        >>> made.save(Path(tempfile.mkdtemp(), "play.html")).name
        'play.html'
    """

    def __init__(self, content: Mapping[str, Any], height: int = HEIGHT) -> None:
        self.content, self.height = content, height

    @property
    def html(self) -> str:
        """The page as text."""
        return page.filled(self.content)

    def save(self, path: str | Path) -> Path:
        """Write the page atomically to a file, which is all that is needed to show it anywhere."""
        write_whole(Path(path), self.html.encode())
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
