from .decide import separability as separability
