from .minimise import Optimum as Optimum
from .sgd import descend as descend
