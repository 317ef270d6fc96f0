from .page import check_texts as check_texts
from .page import content as content
from .page import english as english
from .page import make_page as make_page
from .show import play as play
from .shown import Play as Play
from .widget import PlayWidget as PlayWidget
