"""The examples of the README run and print what they say; commands and links of all pages exist; the check of the built site.

The examples of docs/ run in ``make docs``, which shows what they print.
"""

import doctest
import re
import runpy
import shlex
from pathlib import Path

import pytest

from torchperc.cli import entry

ROOT = Path(__file__).parent.parent
DOCS = [page for page in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in page.parts]
TOP = sorted(ROOT.glob("*.md"))
PAGES = [*TOP, *DOCS]


def name(page):
    return page.relative_to(ROOT).as_posix()


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore::UserWarning:pytorch_lightning.*")  # what Lightning says
def test_the_examples_of_the_readme_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = "".join(blocks(ROOT / "README.md", "python"))
    test = doctest.DocTestParser().get_doctest(examples, {}, "README.md", "README.md", 0)
    assert len(test.examples) > 20
    output: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=output.append)
    assert not output, "".join(output)


@pytest.mark.parametrize("page", DOCS, ids=name)
def test_what_an_example_prints_is_not_written_by_hand(page):
    assert ">>>" not in page.read_text()


COMMANDS = [
    pytest.param(command, id=f"{name(page)}: {' '.join(command)}")
    for page in PAGES
    for block in blocks(page, "sh")
    for command in (shlex.split(line, comments=True) for line in block.splitlines())
    if command
]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_exist(command):
    program, *words = command
    if program == "make":
        makefile = (ROOT / "Makefile").read_text()
        assert all(re.search(rf"^{word}:", makefile, re.MULTILINE) for word in words)
    elif program == "torchrun":
        assert words[2:4] == ["-m", "torchperc"] or (ROOT / words[2]).is_file()
    elif program == "torchperc" and words[0] in entry.CONFIGURED:
        assert (ROOT / words[words.index("--config") + 1]).is_file()
    elif program == "torchperc":
        entry.parser().parse_args(words)
    else:
        assert program in ("pip", "tensorboard")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_links_lead_somewhere(page):
    made = (ROOT / "docs/gallery", ROOT / "docs/notebooks")  # by `make docs`, which checks its links itself
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        path = (page.parent / target).resolve()
        assert target.startswith("https://") or path.exists() or path.parent in made, target
    for path in re.findall(r"`((?:tests|experiments|configs|docs|torchperc)/[\w/.-]+)`", page.read_text()):
        assert (ROOT / path).exists(), path


check = runpy.run_path(str(ROOT / "docs" / "check_site.py"))["main"]


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
