from .learn import Learned as Learned
from .learn import learn as learn
