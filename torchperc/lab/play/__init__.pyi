from .data import play as play
from .page import Play as Play
from .page import content as content
from .page import make_page as make_page
from .widget import PlayWidget as PlayWidget
