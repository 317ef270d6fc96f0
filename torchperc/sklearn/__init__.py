"""scikit-learn estimators: the perceptron rule, LMS, logistic and linear regression, as scikit-learn expects them.

They work in pipelines, searches and cross-validation, accept frames, arrays, sparse matrices (which stay sparse), any
labels, sample and class weights, and learn in chunks by ``partial_fit``.
"""

from torchperc._lazy import attach, requires

requires(__name__, "sklearn")
__getattr__, __dir__, __all__ = attach(__name__, __file__, {"Ending": "Verdict"})
