"""The check of the built documentation finds what is broken."""

import runpy
from pathlib import Path

import pytest

check = runpy.run_path(str(Path(__file__).parent.parent / "docs" / "check_site.py"))["main"]


@pytest.fixture
def found(tmp_path, capsys):
    """Check a site of one page beside an empty one; return the exit code and what is wrong."""

    def found(body):
        (tmp_path / "sub").mkdir(exist_ok=True)
        (tmp_path / "index.html").write_text(f"<html><body>{body}</body></html>")
        (tmp_path / "sub" / "other.html").write_text('<p id="there"></p><a href="../index.html">back</a>')
        code = check(tmp_path)
        return code, capsys.readouterr().err.splitlines()

    return found


@pytest.mark.parametrize(
    "body",
    [
        '<a href="sub/other.html">a page</a>',
        '<a href="sub/other.html#there">an anchor</a>',
        '<p id="here"></p><a href="#here">here</a>',
        '<a href="https://example.org/page">a link elsewhere is followed by nobody</a>',
        '<link rel="canonical" href="https://example.org">',
    ],
)
def test_what_is_well(found, body):
    assert found(body) == (0, [])


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
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
def test_what_is_broken(found, body, complaint):
    assert found(body) == (1, [complaint])


def test_a_folder_without_pages(tmp_path):
    assert check(tmp_path) == 2
