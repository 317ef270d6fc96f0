from . import dialects as dialects
