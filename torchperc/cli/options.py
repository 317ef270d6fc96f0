"""Arguments of a command, made from the signature and the docstring of its function."""

from __future__ import annotations

import argparse
import inspect
import re
import shlex
from ast import literal_eval
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torchperc as tp
from torchperc._checks import Option

NAMES = {"source": "data", "model": "run", "folder": "out", "max_epochs": "epochs", "fractions": "split"}
"""Parameters that have another name on the command line."""
_FLAGS = ("stream",)  # options without a value, beside those that are False by default
_HIDDEN = {"reading": {"task", "stream"}}  # by the name of **parameters
_TRUTH = {"yes": True, "no": False, "auto": None}


def parameters(function: Callable[..., Any]) -> Iterator[tuple[inspect.Parameter, str]]:
    """The parameters of a command with what its docstring says of each; those of ``read`` in place of ``**``."""
    told, own = _told(function), inspect.signature(function).parameters
    for parameter in own.values():
        if parameter.kind is not parameter.VAR_KEYWORD:
            if not str(parameter.annotation).startswith("Callable"):
                yield parameter, told[parameter.name]
            continue
        left_out = {"path", *own, *_HIDDEN.get(parameter.name, ())}
        for source in (tp.data.read, tp.data.ReadOptions):
            told = _told(source)
            for each in inspect.signature(source).parameters.values():
                if each.name not in left_out and each.kind is not each.VAR_KEYWORD:
                    yield each, told[each.name]


def summary(function: Callable[..., Any]) -> str:
    """The first line of a docstring."""
    return _plain(inspect.getdoc(function) or "").partition("\n")[0].rstrip(".")


def add_arguments(parser: argparse.ArgumentParser, function: Callable[..., Any], several: bool = True) -> None:
    """Describe a command by its function; an option of several words reads one word each time unless ``several``."""
    parser.description = _plain(inspect.getdoc(function) or "").partition("\nArgs:\n")[0].partition("\nExample")[0]
    for parameter, text in parameters(function):
        name, default = NAMES.get(parameter.name, parameter.name), parameter.default
        how = _reading(parameter, several)
        if default is inspect.Parameter.empty and parameter.kind is not parameter.KEYWORD_ONLY:
            parser.add_argument(parameter.name, metavar=name.upper() if name == "run" else name, help=text, **how)
            continue
        if default not in (None, (), False, inspect.Parameter.empty) and "default" not in text:
            shown = (
                "yes" if default is True else " ".join(map(str, default if isinstance(default, tuple) else [default]))
            )
            text = f"{text.rstrip('.')} (default: {shown})"
        flags = ["-o"] * (name == "out") + [f"--{name.replace('_', '-')}"]
        required = default is inspect.Parameter.empty
        parser.add_argument(*flags, dest=parameter.name, default=argparse.SUPPRESS, required=required, help=text, **how)


def _reading(parameter: inspect.Parameter, several: bool) -> dict[str, Any]:
    """How argparse reads the words of a parameter, by its annotation."""
    kind, how = str(parameter.annotation), dict[str, Any]()
    choices = re.search(r"Literal\[([^\]]*)\]", kind)
    number = re.search(r"\b(int|float)\b", kind.replace("str | int", "str"))
    if "bool" in kind:
        if parameter.default is False or parameter.name in _FLAGS:
            return {"action": "store_true"}
        words = list(_TRUTH)[: 3 if parameter.default is None else 2]
        return {"type": _truth, "metavar": f"{{{','.join(words)}}}"}
    if choices:
        how["choices"] = literal_eval(f"({choices[1]},)")
    elif number:
        how["type"] = {"int": int, "float": float}[number[1]]
    if kind.startswith("tuple["):
        how["nargs"] = kind.partition("]")[0].count(",") + 1
    elif "Sequence[" in kind and parameter.default is inspect.Parameter.empty:
        how["nargs"] = "+"
    elif "Sequence[" in kind:
        how |= (
            {"nargs": "*" if parameter.name == "keep" else "+", "action": "extend"} if several else {"action": "append"}
        )
    return how


def _truth(word: str) -> bool | None:
    if word not in _TRUTH:
        raise argparse.ArgumentTypeError(f"invalid choice: {word!r} (choose from {', '.join(_TRUTH)})")
    return _TRUTH[word]


def _told(function: Callable[..., Any]) -> dict[str, str]:
    """What a docstring says of each parameter."""
    arguments = _plain(inspect.getdoc(function) or "").partition("\nArgs:\n")[2].partition("\n\n")[0]
    found = re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", arguments, re.MULTILINE)
    return {name: " ".join(text.split()).replace("%", "%%") for name, text in found}


def _plain(text: str) -> str:
    """A docstring without its markup."""
    return re.sub(r':\w+:`[~.\w]*?(\w+)`|``"?([^`"]*)"?``', lambda found: found[1] or found[2], text)


def spelled(option: Option, known: Mapping[str, Any]) -> str:
    """A parameter in a library's error as the command's own option; as in Python if the command has none.

    Example:
        >>> spelled(Option("max_epochs", 0), {"max_epochs": None}), spelled(Option("tie", "x"), {})
        ('--epochs 0', "tie='x'")
    """
    name, value = NAMES.get(option.name, option.name), option.value
    if option.name not in known and name not in known:
        return str(option)
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return flag if known.get(option.name) is False or name in _FLAGS else f"{flag} {'yes' if value else 'no'}"
    return shlex.join([flag, *map(str, value if isinstance(value, list | tuple) else [value])])
