from .page import Code as Code
from .page import Picture as Picture
from .page import Report as Report
from .page import Section as Section
from .page import Table as Table
from .page import Text as Text
from .sections import report as report
