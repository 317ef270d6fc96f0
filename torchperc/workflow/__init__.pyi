from .apply import Applied as Applied
from .learn import Candidate as Candidate
from .learn import Learned as Learned
from .learn import LearnedRegression as LearnedRegression
