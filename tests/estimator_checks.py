"""scikit-learn's own checks of estimators, as parameters of a test."""

from sklearn.utils.estimator_checks import estimator_checks_generator

from torchperc.sklearn import expected_failed_checks


def pairs(estimators):
    """Every estimator with each of its checks; those that are expected to fail are marked."""
    return [
        pair
        for estimator in estimators
        for pair in estimator_checks_generator(
            estimator, expected_failed_checks=expected_failed_checks(estimator), mark="xfail"
        )
    ]


def named(value):
    """A check is a partial whose function has a name."""
    while hasattr(value, "func"):
        value = value.func
    return getattr(value, "__name__", str(value))
