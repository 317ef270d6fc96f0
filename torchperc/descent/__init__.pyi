from .minimise import Optimum as Optimum
from .minimise import minimise as minimise
from .sgd import descend as descend
