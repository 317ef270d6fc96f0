"""scikit-learn estimators: the perceptron rule, LMS, logistic and linear regression, as scikit-learn expects them.

They work in pipelines, searches and cross-validation, accept frames, arrays, sparse matrices (which stay sparse), any
labels, sample and class weights, and learn in chunks by ``partial_fit``.
"""

from lazy_loader import attach_stub

from torchperc._checks import require_packages

require_packages(__name__, "sklearn")
__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
