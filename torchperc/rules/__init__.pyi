from . import dialects as dialects
from .decision import PerceptronRule as PerceptronRule
from .decision import Rule as Rule
from .family import ALMA as ALMA
from .family import ROMMA as ROMMA
from .family import AggressiveROMMA as AggressiveROMMA
from .family import PassiveAggressive as PassiveAggressive
from .family import UnevenMargins as UnevenMargins
