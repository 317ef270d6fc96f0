from . import dialects as dialects
from .construct import BuildResult as BuildResult
from .construct import BuildStep as BuildStep
from .construct import build as build
