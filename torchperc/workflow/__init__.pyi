from .learn import Learned as Learned
