"""Children of the fault campaign leave files open, which are closed after each test."""

import gc

import pytest


@pytest.fixture(autouse=True)
def _collected():
    yield
    gc.collect()  # files that a damaged input left open are closed here, not in another test
