from .reference import Engine as Engine
from .reference import LinearEngine as LinearEngine
from .reference import ReferenceEngine as ReferenceEngine
from .reference import Task as Task
