from .chains import ChainPerceptron as ChainPerceptron
from .chains import ChainScores as ChainScores
from .chains import StructuredPerceptronLoss as StructuredPerceptronLoss
from .evaluation import Evaluation as Evaluation
from .evaluation import evaluate as evaluate
from .layout import PaddedSequences as PaddedSequences
from .layout import Sequences as Sequences
from .layout import flat_tags as flat_tags
