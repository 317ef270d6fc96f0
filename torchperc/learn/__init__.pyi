from .apply import Applied as Applied
from .results import LearnResult as LearnResult
