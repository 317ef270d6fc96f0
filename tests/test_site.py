"""The check of the built documentation finds what is broken."""

import runpy
from pathlib import Path

import pytest

check = runpy.run_path(str(Path(__file__).parent.parent / "docs" / "check_site.py"))["main"]


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ('<a href="sub/other.html#there">a page and an anchor</a>', None),
        ('<p id="here"></p><a href="#here">here</a>', None),
        ('<a href="https://example.org/page">a link elsewhere is followed by nobody</a>', None),
        ('<link rel="canonical" href="https://example.org">', None),
        ('<a href="sub/none.html">x</a>', "index.html: sub/none.html is not there"),
        ('<img src="none.png">', "index.html: none.png is not there"),
        ('<a href="sub/other.html#none">x</a>', "index.html: sub/other.html#none has no such anchor"),
        ('<a href="#none">x</a>', "index.html: #none has no such anchor"),
        ('<script src="https://example.org/a.js"></script>', "index.html loads https://example.org/a.js"),
        ('<link rel="stylesheet" href="//example.org/a.css">', "index.html loads //example.org/a.css"),
        ("<style>@import 'https://example.org/a.css'</style>", "index.html loads https://example.org/a.css"),
        ("<p style='background: url(https://example.org/a.png)'>", "index.html loads https://example.org/a.png"),
    ],
)
def test_what_is_broken_is_found(body, complaint, tmp_path, capsys):
    assert check(tmp_path) == 2  # a folder without pages
    (tmp_path / "sub").mkdir()
    (tmp_path / "index.html").write_text(f"<html><body>{body}</body></html>")
    (tmp_path / "sub" / "other.html").write_text('<p id="there"></p><a href="../index.html">back</a>')
    capsys.readouterr()
    assert check(tmp_path) == (0 if complaint is None else 1)
    assert capsys.readouterr().err.splitlines() == ([] if complaint is None else [complaint])
