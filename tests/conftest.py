import os

import pytest
import torch
from hypothesis import HealthCheck, settings

# the suite runs in parallel workers; one thread each keeps them out of each other's way and sums in one order
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))
