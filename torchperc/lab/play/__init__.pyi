from .page import Play as Play
from .page import content as content
from .page import make_page as make_page
from .page import play as play
from .widget import PlayWidget as PlayWidget
