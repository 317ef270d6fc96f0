"""The README's examples run and print what it says they print."""

import doctest
import re

import pytest


def blocks(text):
    return [match.group(1) for match in re.finditer(r"```python\n(.*?)```", text, re.DOTALL)]


def test_the_examples_run(request):
    text = (request.config.rootpath / "README.md").read_text()
    examples = blocks(text)
    assert len(examples) >= 3
    names: dict[str, object] = {}
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    parser = doctest.DocTestParser()
    for number, example in enumerate(examples):
        test = parser.get_doctest(example, names, f"README example {number + 1}", "README.md", 0)
        assert test.examples
        output: list[str] = []
        runner.run(test, out=output.append, clear_globs=False)
        names = test.globs
        if runner.failures:
            pytest.fail("".join(output))
