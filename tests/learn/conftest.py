import pytest


@pytest.fixture
def run(call):
    """A command's two outputs; its exit code is as expected."""

    def checked(*words, code=0):
        found, out, err = call(*words)
        assert found == code, f"{found}: {err}"
        return out, err

    return checked
