from .base import expected_failed_checks as expected_failed_checks
from .gradient import DescentRecord as DescentRecord
from .gradient import Ending as Ending
from .gradient import LMSClassifier as LMSClassifier
from .gradient import LogisticClassifier as LogisticClassifier
from .rule import PerceptronClassifier as PerceptronClassifier
