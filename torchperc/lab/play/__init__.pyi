from .data import play as play
from .page import Play as Play
from .page import content as content
from .widget import PlayWidget as PlayWidget
