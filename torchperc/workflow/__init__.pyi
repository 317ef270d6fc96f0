from .apply import Applied as Applied
from .learn import LearnResult as LearnResult
