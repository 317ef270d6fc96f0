"""The built site holds together: links inside it lead somewhere, and nothing is loaded from another machine.

python docs/check_site.py docs/_build/html
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# what a browser fetches by itself; a link that somebody may follow is none of it
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "link": "href"}
NOT_LOADED = {"canonical", "next", "prev", "search", "index"}  # of <link rel=…>
REMOTE = re.compile(r"^(https?:)?//")
REMOTE_STYLE = re.compile(r"""(?:url\(\s*|@import\s+)['"]?((?:https?:)?//[^'")\s]+)""")


class Page(HTMLParser):
    """The links, anchors and loads of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if (attribute := LOADED.get(tag)) in given and not NOT_LOADED & set(given.get("rel", "").split()):
            self.loads.append(given[attribute])


@functools.cache
def page(path: Path) -> Page:
    return Page(path)


def broken(path: Path, target: str) -> str | None:
    """What is wrong with a link of a page to another file of the site; ``None`` if nothing is."""
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return None
    file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not file.is_file():
        return f"{target} is not there"
    anchor = unquote(parts.fragment)
    if anchor and file.suffix == ".html" and anchor not in page(file).anchors:
        return f"{target} has no such anchor"
    return None


def pages(site: Path) -> list[Path]:
    """Those of the site; the theme keeps templates of its own in _static."""
    return sorted(path for path in site.rglob("*.html") if "_static" not in path.parts)


def complaints(site: Path) -> Iterator[str]:
    """One line per broken link, and per thing that a page or a style sheet loads from elsewhere."""
    for path in pages(site):
        name = path.relative_to(site)
        for target in dict.fromkeys([*page(path).links, *page(path).loads]):
            if wrong := broken(path, target):
                yield f"{name}: {wrong}"
        yield from (f"{name} loads {target}" for target in page(path).loads if REMOTE.match(target))
    for path in [*sorted(site.rglob("*.css")), *pages(site)]:
        for target in REMOTE_STYLE.findall(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(site)} loads {target}"


def main(site: Path) -> int:
    if not pages(site):
        print(f"{site} has no pages; build it first: make docs", file=sys.stderr)
        return 2
    found = list(complaints(site))
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    print(f"{len(pages(site))} pages: {len(found)} broken links and loads from elsewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
