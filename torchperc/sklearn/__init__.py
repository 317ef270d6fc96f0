"""scikit-learn estimators: the perceptron rule, LMS and logistic regression, with everything scikit-learn expects.

They work in pipelines, searches and cross-validation, take frames, arrays and sparse matrices (which stay sparse), any
labels, sample and class weights, and learn in chunks by ``partial_fit``.
"""

from torchperc.sklearn.base import expected_failed_checks
from torchperc.sklearn.gradient import DescentRecord, Ending, LMSClassifier, LogisticClassifier
from torchperc.sklearn.rule import PerceptronClassifier

__all__ = [
    "DescentRecord",
    "Ending",
    "LMSClassifier",
    "LogisticClassifier",
    "PerceptronClassifier",
    "expected_failed_checks",
]
