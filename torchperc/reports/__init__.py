"""Reports: one HTML page of a run that needs no network.

``report(result, X, y)`` makes one of a model in memory, ``torchperc report RUN`` of a folder. Pages of other content
are a ``Report`` of sections.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
