"""scikit-learn's own checks of estimators, as parameters of a test."""

from sklearn.utils.estimator_checks import estimator_checks_generator

from torchperc.sklearn import LogisticClassifier


def expected_failed_checks(estimator):
    """What an estimator cannot pass: a weight of 3 is not three copies, and what ``partial_fit`` refuses."""
    options, failed = estimator.get_params(), {}
    stepwise = options.get("update", "sample") == "sample"
    endless = isinstance(estimator, LogisticClassifier) and options["update"] == "optimum" and not options["l2"]
    if stepwise or endless or options["early_stopping"]:
        kinds = ("dense", "sparse")
        failed = {f"check_sample_weight_equivalence_on_{kind}_data": "order, or no minimum" for kind in kinds}
    if options["early_stopping"] or options.get("class_weight") == "balanced":
        names = ("fit_score_takes_y", "n_features_in_after_fitting", "estimators_partial_fit_n_features")
        failed |= {f"check_{name}": "partial_fit refuses these parameters" for name in names}
    return failed


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
