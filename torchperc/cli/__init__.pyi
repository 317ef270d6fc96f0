from .entry import main as main
