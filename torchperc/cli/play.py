"""``torchperc play``: a page to play with, the perceptron rule step by step, in the browser."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from torchperc.cli import inputs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Writes one self-contained HTML page and opens it in the browser: put down points, step through the mistakes "
        "of the perceptron rule, switch conventions, see the proof, the gradient and a two-layer net. It needs no "
        "network and sends nothing."
    )
    parser.add_argument("--out", metavar="FILE", help="write the page to this file, and open nothing")
    data = f"begin with these points: {inputs.FORMATS}; or AND, XOR, iris, …; two features, up to four classes"
    parser.add_argument("--data", metavar="FILE", help=data)
    log = "replay a recorded run: a log that MistakeLog.save wrote (.npz, with --data for its data) or JSON"
    parser.add_argument("--log", metavar="FILE", help=log)
    two = "the two features to be shown, by name or position from 1, where there are more"
    parser.add_argument("--features", nargs=2, metavar=("A", "B"), help=two)
    parser.add_argument("--samples", type=int, metavar="N", help="draw so many samples at random")
    language = "show the page in another language: the JSON that --texts writes, translated"
    parser.add_argument("--language", metavar="FILE", help=language)
    texts = "write every English text of the page as JSON, to be translated, to this file (default: print it)"
    parser.add_argument("--texts", metavar="FILE", nargs="?", const="-", help=texts)
    inputs.add_arguments(parser)


def run(arguments: argparse.Namespace) -> None:
    """Write the page, and open it unless it was to be written somewhere."""
    from torchperc.lab.play.shown import Play

    if arguments.texts is not None:
        _write_texts(arguments)
        return
    _check(arguments)
    out = None if arguments.out is None else inputs.output_file(arguments.out)
    texts = None if arguments.language is None else _language(Path(arguments.language))
    page = Play(_content(arguments, texts))
    inputs.say(f"the page: {page.open() if out is None else page.save(out)}")


def _check(arguments: argparse.Namespace) -> None:
    """Refuse options that would have no effect, and files that are none."""
    saved = 'name the log itself, such as run.npz, which result.log.save("run.npz") writes'
    _check_file("log", arguments.log, saved)
    _check_file("language", arguments.language, "write one by torchperc play --texts FILE")
    given = inputs.options(arguments)
    if arguments.data is None and given:
        raise ValueError(f"--{next(iter(given)).replace('_', '-')} is about a file of samples; name it by --data FILE")
    if arguments.data is None and arguments.log is None and arguments.features is not None:
        raise ValueError("--features chooses features of data; name them by --data FILE or --log FILE")
    if arguments.data is None and arguments.log is not None and Path(arguments.log).suffix.lower() != ".json":
        raise ValueError(f"{arguments.log} holds no data; name the file that it was made on by --data FILE")
    if arguments.samples is not None and (arguments.data is None or arguments.log is not None):
        raise ValueError(
            f"--samples {arguments.samples} draws from --data FILE; a log is replayed with all of its samples"
        )


def _check_file(option: str, path: str | None, remedy: str) -> None:
    if path is not None and not Path(path).is_file():
        raise ValueError(f"--{option} {path} is {'a folder' if Path(path).is_dir() else 'no file'}; {remedy}")


def _content(arguments: argparse.Namespace, texts: dict[str, str] | None) -> dict[str, Any]:
    if arguments.data is None and arguments.log is None:  # torch is not needed
        from torchperc.lab.play.page import content

        return content(texts=texts)
    from torchperc.lab.play import contents

    table = None if arguments.data is None else inputs.load(arguments)
    shown: dict[str, Any] = {"features": arguments.features, "texts": texts}
    if arguments.log is not None:
        log, told = contents.load_log(Path(arguments.log), table)
        return contents.content_of_log(log, table=table, **told, **shown)
    assert table is not None
    return contents.content_of_data(table, samples=arguments.samples, **shown)


def _write_texts(arguments: argparse.Namespace) -> None:
    from torchperc._atomic import write_whole
    from torchperc.lab.play.page import english

    text = json.dumps(english(), ensure_ascii=False, indent=1)
    if arguments.texts == "-":
        print(text)
    else:
        write_whole(inputs.output_file(arguments.texts, "texts"), f"{text}\n".encode())
        inputs.say(f"{len(english())} texts: {arguments.texts}")


def _language(path: Path) -> dict[str, str]:
    from torchperc.lab.play.page import check_texts

    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}); write one by torchperc play --texts {path}") from None
    return check_texts(found, str(path))
