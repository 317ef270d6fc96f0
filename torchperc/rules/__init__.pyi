from . import dialects as dialects
from .decision import PerceptronRule as PerceptronRule
from .family import ALMA as ALMA
from .family import ROMMA as ROMMA
from .family import PassiveAggressive as PassiveAggressive
from .family import Rule as Rule
from .family import UnevenMargins as UnevenMargins
