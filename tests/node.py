"""Runs the page's scripts in Node, without a browser."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import torchperc

SCRIPTS = Path(torchperc.__file__).parent / "lab" / "play" / "js"


def node():
    """The node on the PATH, else the one inside playwright's package."""
    found = shutil.which("node")
    if found is None:
        package = pytest.importorskip("playwright", reason="`make test-all` installs playwright, which has Node")
        found = str(Path(package.__file__).parent / "driver" / "node")
    return found


def run_node(scripts, program, questions):
    """Run the scripts of these names and then the program, which reads ``questions`` and sets ``answer``; return that."""
    texts = (SCRIPTS.parent / "texts.json").read_text("utf-8")
    source = f"const TEXTS = {texts};\n" + "\n".join((SCRIPTS / name).read_text("utf-8") for name in scripts)
    wrapped = f"""(() => {{"use strict";
const questions = {json.dumps(questions)};
let answer = null;
{source}
{program}
process.stdout.write(JSON.stringify(answer));
}})()"""
    done = subprocess.run([node(), "-"], input=wrapped, capture_output=True, encoding="utf-8", timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
