"""Which features a token has, written in the syntax of CRF++ templates, with affixes, lower case and shape added.

======================  ==============================================================================================
macro                   what it stands for
======================  ==============================================================================================
``%x[r,c]``             the string of column c (from 0), r tokens further on (r < 0: before)
``%lower[r,c]``         the same in lower case, as ``str.lower`` has it
``%prefix[r,c,n]``      its first n characters, as ``s[:n]``: all of a shorter string
``%suffix[r,c,n]``      its last n characters, as ``s[-n:]``
``%shape[r,c]``         its shape: X for capital letters, x for other letters, d for digits, any other character as it
                        is, of equal ones in a row at most two: ``McCoy-12`` is ``XxXxx-dd``
======================  ==============================================================================================

Characters are Unicode code points. Beyond the first token of a sentence every macro gives ``_B-1``, ``_B-2``, …, beyond
the last ``_B+1``, ``_B+2``, …

A line that begins with ``U`` is a template: ``U05:%x[-1,0]/%x[0,0]`` gives the feature ``U05:the/dog``. Without a macro
it is the same feature in every token (a bias). Templates with the same text around their macros share their features,
as in CRF++: that is how a bag of words is written. ``B`` stands for the pairs of neighbouring tags, which the chain
always has. Empty lines and those that begin with ``#`` are ignored.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

KINDS = ("x", "lower", "prefix", "suffix", "shape")
_ARGUMENTS = {"x": 2, "lower": 2, "prefix": 3, "suffix": 3, "shape": 2}
_FURTHEST = 100  # tokens that a macro may look away; CRF++ allows 4
_MACRO = re.compile(r"%(\w*)(?:\[([^\]]*)\])?")


class View(NamedTuple):
    """What is looked at of a string: ``kind`` of :data:`KINDS`, ``length`` for affixes (else 0)."""

    kind: str
    length: int


class Part(NamedTuple):
    """One macro: a view of the string in a column, so many tokens further on."""

    view: View
    row: int
    column: int


class Template(NamedTuple):
    """One line: macros, and the text before, between and behind them."""

    texts: tuple[str, ...]
    parts: tuple[Part, ...]

    def name(self, values: tuple[str, ...]) -> str:
        """The feature with these strings for its macros."""
        return self.texts[0] + "".join(value + text for value, text in zip(values, self.texts[1:], strict=True))


class Templates:
    """Feature templates in the syntax of CRF++, with the macros of this module.

    Args:
        text: the lines. An error names the file and line.
        name: of the file, for errors.

    Example:
        >>> templates = Templates("U00:%x[0,0]\\nU01:%x[-1,0]/%lower[0,0]\\nB")
        >>> len(templates), templates.columns
        (2, 1)
        >>> templates.lines[1].name(("the", "dog"))
        'U01:the/dog'
        >>> Templates("U00:%y[0,0]")
        Traceback (most recent call last):
        ValueError: templates, line 1, column 5: unknown macro '%y'; choose one of %x, %lower, %prefix, %suffix, %shape
    """

    def __init__(self, text: str, name: str = "templates") -> None:
        if not isinstance(text, str):
            raise TypeError(f"text must be a string of template lines, found {type(text).__name__}")
        self.text, self.name = text, name
        found = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
        lines = [_template(line, f"{name}, line {number}") for number, line in found if line and line[0] not in "#B"]
        for number, line in found:
            if line.startswith("B"):
                _check_bigram(line, f"{name}, line {number}")
        if not lines:
            raise ValueError(f"{name} has no template; write at least one line such as U00:%x[0,0]")
        self.lines: tuple[Template, ...] = tuple(dict.fromkeys(lines))

    @classmethod
    def read(cls, path: str | Path) -> Templates:
        """Templates from a file."""
        try:
            return cls(Path(path).read_bytes().decode("utf-8-sig"), str(path))
        except OSError as error:
            raise ValueError(f"cannot read {path}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            raise ValueError(f"{path}, line {line}: not valid UTF-8; save the templates as UTF-8") from None

    @classmethod
    def default(cls, columns: int = 1) -> Templates:
        """The default set for words in column 0, with the values of further columns at −1, 0 and +1.

        Example:
            >>> len(Templates.default(columns=2)) - len(Templates.default())
            3
        """
        more = [
            f"U{column}{place}:%x[{row},{column}]"
            for column in range(1, columns)
            for place, row in (("-1", -1), ("+0", 0), ("+1", 1))
        ]
        return cls("\n".join([DEFAULT, *more]), "the default templates")

    @property
    def columns(self) -> int:
        """How many columns are needed at least: one more than the highest column named."""
        return max((part.column + 1 for line in self.lines for part in line.parts), default=1)

    def __len__(self) -> int:
        return len(self.lines)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Templates) and self.lines == other.lines

    def __hash__(self) -> int:
        return hash(self.lines)

    def __repr__(self) -> str:
        return f"Templates({self.text!r})"


def _template(line: str, where: str) -> Template:
    if line[0] != "U":
        why = f"{line!r} begins with neither U (a template), B (pairs of tags) nor # (a comment)"
        raise ValueError(f"{where}: {why}; write U00:%x[0,0] for the word itself")
    texts, parts, end = [], [], 0
    for found in _MACRO.finditer(line):
        texts.append(line[end : found.start()])
        parts.append(_part(found[1], found[2], f"{where}, column {found.start() + 1}"))
        end = found.end()
    return Template((*texts, line[end:]), tuple(parts))


def _part(kind: str, arguments: str | None, where: str) -> Part:
    if kind not in KINDS:
        raise ValueError(f"{where}: unknown macro '%{kind}'; choose one of {', '.join('%' + each for each in KINDS)}")
    usage = f"%{kind}[row,column{',length' if _ARGUMENTS[kind] == 3 else ''}]"
    try:
        row, column, length = (*map(int, (arguments or "").split(",")), *[0] * (3 - _ARGUMENTS[kind]))
    except ValueError:
        shown = f"%{kind}" if arguments is None else f"%{kind}[{arguments}]"
        raise ValueError(f"{where}: {shown!r} is not of the form {usage}, with integers in it") from None
    if abs(row) > _FURTHEST:
        raise ValueError(f"{where}: row {row} looks too far away; choose one from -{_FURTHEST} to {_FURTHEST}")
    if not 0 <= column < 1000:
        raise ValueError(f"{where}: there is no column {column}; columns count from 0")
    if _ARGUMENTS[kind] == 3 and not 1 <= length <= 1000:
        raise ValueError(f"{where}: length {length} of a {kind} must be from 1 to 1000")
    return Part(View(kind, length), row, column)


def _check_bigram(line: str, where: str) -> None:
    if "%" in line:
        raise ValueError(
            f"{where}: {line!r} asks for pairs of tags with a macro, which the chain does not have; "
            "write B for the pairs of tags alone, and a U line for the macro"
        )


DEFAULT = """\
# the word, its beginnings, endings and shape
U:bias
U00:%x[0,0]
U01:%lower[0,0]
U02:%prefix[0,0,1]
U03:%prefix[0,0,2]
U04:%prefix[0,0,3]
U05:%prefix[0,0,4]
U06:%suffix[0,0,1]
U07:%suffix[0,0,2]
U08:%suffix[0,0,3]
U09:%suffix[0,0,4]
U10:%shape[0,0]
# its neighbours
U11:%lower[-2,0]
U12:%lower[-1,0]
U13:%lower[1,0]
U14:%lower[2,0]
U15:%shape[-1,0]
U16:%shape[1,0]
U17:%lower[-1,0]/%lower[0,0]
U18:%lower[0,0]/%lower[1,0]
# pairs of neighbouring tags
B
"""
