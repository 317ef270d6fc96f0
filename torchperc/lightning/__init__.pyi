import torchperc.sequences.lightning

from .callbacks import EpsilonStop as EpsilonStop
from .callbacks import RestoreBest as RestoreBest
from .callbacks import SaveOnSignal as SaveOnSignal
from .callbacks import StopOnDivergence as StopOnDivergence
from .checkpoints import CheckpointError as CheckpointError
from .checkpoints import SafeCheckpointIO as SafeCheckpointIO
from .classifier import LitClassifier as LitClassifier
from .data import TabularDataModule as TabularDataModule
from .loader import SliceLoader as SliceLoader
from .loader import fitted_model as fitted_model
from .regressor import LitRegressor as LitRegressor
from .rule import LitRule as LitRule
from .tensorboard import Board as Board
from .trainer import make_trainer as make_trainer
from .trainer import quiet as quiet

LitTagger = torchperc.sequences.lightning.LitTagger
