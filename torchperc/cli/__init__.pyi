from .entry import fail as fail
from .entry import main as main
