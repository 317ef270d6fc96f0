from .page import check_texts as check_texts
from .page import english as english
from .page import make_page as make_page
