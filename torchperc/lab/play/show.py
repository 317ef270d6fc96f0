"""``tp.play``: the interactive page on the user's own data, in a notebook or in the browser."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchperc._checks import check_int
from torchperc.lab.play.page import HEIGHT, Play

if TYPE_CHECKING:
    from torchperc._checks import Data
    from torchperc.lab.play.widget import PlayWidget
    from torchperc.rules.log import MistakeLog
    from torchperc.rules.run import RuleResult
    from torchperc.rules.trainer import RuleTrainer


def play(
    X: Data | None = None,
    y: Data | None = None,
    *,
    log: MistakeLog | RuleResult | str | Path | None = None,
    trainer: RuleTrainer | None = None,
    features: Sequence[str | int] | None = None,
    names: Sequence[str] | None = None,
    samples: int | None = None,
    out: str | Path | None = None,
    height: int = HEIGHT,
) -> Play | PlayWidget:
    """The interactive page on data of one's own: the rule step by step, conventions, the proof, the gradient.

    In a notebook it returns a widget that shows the page and hands the edited points back as ``.X`` and ``.y``; this
    needs ``pip install 'torchperc[notebook]'``, without which the page is shown and hands nothing back. Elsewhere the
    page is written to a temporary folder and opened in the browser. With ``out`` it is written there, and nothing is
    opened.

    Args:
        X: samples (N, 2), or more features of which ``features`` names two; an example to begin with if ``None``.
        y: their labels of any kind, at most four.
        log: a run to replay: a log or a result, or the path of a ``.json`` log. It has its data itself.
        trainer: whose conventions the page begins with; also those of the run in ``log``, which does not store them.
        features: two features by name, or by position from 1.
        names: of all features; those of a data frame by default.
        samples: draw so many of them at random.
        out: the file to write.
        height: pixels in a notebook.

    Example:
        >>> import tempfile, torchperc as tp
        >>> X, y = tp.data.gate("XOR")
        >>> page = tp.play(X, y, trainer=tp.RuleTrainer(tie="sign"), out=Path(tempfile.mkdtemp(), "xor.html"))
        >>> "point" in page.html
        True
    """
    from torchperc.lab.play.contents import content_of

    given: dict[str, Any] = {"log": log, "trainer": trainer, "features": features, "names": names}
    made = Play(content_of(X, y, samples=samples, **given), check_int("height", height, at_least=100))
    if out is None and in_notebook():
        if importlib.util.find_spec("anywidget") is not None:
            from torchperc.lab.play.widget import Coding, PlayWidget

            return PlayWidget(made.content, Coding.of(X, y), height)
        why = "the page cannot hand points back; install anywidget with: pip install 'torchperc[notebook]'"
        warnings.warn(why, stacklevel=2)
        return made
    if out is None:
        print(f"the page: {made.open()}")
    else:
        made.save(out)
    return made


def in_notebook() -> bool:
    """Whether this runs in a kernel of Jupyter, VS Code or the like, which shows what a cell returns."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None
