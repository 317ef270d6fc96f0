from .base import LinearClassifier as LinearClassifier
from .base import Verdict as Verdict
from .base import expected_failed_checks as expected_failed_checks
from .gradient import DescentRecord as DescentRecord
from .gradient import GradientClassifier as GradientClassifier
from .gradient import LMSClassifier as LMSClassifier
from .gradient import LogisticClassifier as LogisticClassifier
from .rule import PerceptronClassifier as PerceptronClassifier
