from . import demo as demo
from . import play as play
from . import xor as xor
from . import xor_figures as xor_figures
