"""What the tests of files share: a file of some content, and the one line that an error says."""

import pytest


def write(folder, content, name="data.csv", encoding="utf-8"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
    return path


def said_by(call, kind=ValueError):
    with pytest.raises(kind) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)
