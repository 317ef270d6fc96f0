from .reference import Engine as Engine
from .reference import ReferenceEngine as ReferenceEngine
