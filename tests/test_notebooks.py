"""The notebooks run, and the outputs that are kept in them are those that they have now."""

import re

import pytest

pytest.importorskip("nbclient", reason="`make test-all` installs what runs notebooks")
from notebook_runs import NOTEBOOKS, ROOT, SOLUTION, outputs, read, run

pytestmark = pytest.mark.slow
by_name = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@by_name
def test_a_run_gives_the_outputs_that_are_kept(path):
    kept = read(path)
    for cell, now in zip(kept.cells, run(kept).cells, strict=True):
        where = f"cell {cell.id}; `make notebooks` keeps new outputs"
        assert outputs(now) == outputs(cell), where
        assert now.source == cell.source, where  # with what solutions print


@by_name
def test_the_file_is_small_and_has_nothing_of_the_machine(path):
    text = path.read_text()
    assert len(text) < 400_000
    assert str(ROOT) not in text
    assert not re.search(r"/tmp/|/home/|/root/|iopub|\"execution\"", text)
    kinds = {kind for cell in read(path).cells for kind, _ in outputs(cell)}
    assert {"stdout", "picture"} <= kinds <= {"stdout", "picture", "result"}  # no errors and warnings


@by_name
def test_exercises_have_hidden_solutions_and_links_lead_to_files(path):
    texts = [cell.source for cell in read(path).cells if cell.cell_type == "markdown"]
    solutions = [text for text in texts if "<details>" in text]
    assert len(solutions) == sum("**Exercise" in text for text in texts) >= 3
    for text in solutions:
        (found,) = SOLUTION.finditer(text)
        assert found[4], "a solution shows nothing"
    for target in re.findall(r"\]\(([^)#]+)\)", "".join(texts)):
        assert (path.parent / target).is_file(), target


def test_there_are_five_and_the_readme_names_them():
    readme = (ROOT / "notebooks" / "README.md").read_text()
    assert len(NOTEBOOKS) == 5
    assert re.findall(r"\]\((\S+\.ipynb)\)", readme) == [path.name for path in NOTEBOOKS]
