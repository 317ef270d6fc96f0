import re
from html import unescape

import pytest


@pytest.fixture
def run(call):
    """A command's two outputs; its exit code is as expected."""

    def checked(*words, code=0):
        found, out, err = call(*words)
        assert found == code, f"{found}: {err}"
        return out, err

    return checked


@pytest.fixture
def words():
    """What the report in a folder says."""

    def read(folder):
        page = (folder / "report.html").read_text()
        return " ".join(unescape(re.sub("<style>.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL)).split())

    return read
