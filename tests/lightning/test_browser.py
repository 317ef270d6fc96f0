"""What a user sees: TensorBoard in a headless Chromium, on a folder with a run of the rule and one by gradient."""

import io
import re
import subprocess
import sys
import threading
from collections import Counter
from contextlib import contextmanager

import plain
import pytest
import pytorch_lightning as pl
from chromium import PATIENCE, SHOTS, chromium
from PIL import Image
from playwright.sync_api import expect
from pytorch_lightning.loggers import TensorBoardLogger

import torchperc as tp
from torchperc.lightning import LitClassifier, LitRule, TabularDataModule, make_trainer

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def runs(folder):
    lits = {"rule": LitRule(tp.Perceptron(2)), "gradient": LitClassifier(tp.Perceptron(2), "logistic", lr=0.5)}
    for name, lit in lits.items():
        trainer = make_trainer(folder / name, 12, accelerator="cpu", enable_progress_bar=False)
        trainer.fit(lit, TabularDataModule("noisy-blobs", options={"samples": 100}))
    return lits


@contextmanager
def tensorboard(folder):
    """TensorBoard on a free port of its own choice."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", folder, "--host", "127.0.0.1", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    limit = threading.Timer(PATIENCE / 1000, server.kill)  # a server that says nothing is ended, and with it the wait
    limit.start()
    said = []
    try:
        for line in server.stdout:
            said.append(line)
            if found := re.search(r"http://127\.0\.0\.1:\d+/", line):
                break
        else:
            pytest.fail(f"TensorBoard did not start: {''.join(said)}")
        limit.cancel()
        yield found.group()
    finally:
        limit.cancel()
        server.terminate()
        server.communicate(timeout=PATIENCE / 1000)


@pytest.fixture(scope="module")
def address(folder, runs):
    with tensorboard(folder) as found:
        yield found


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile")) as window:
        yield window


LOADED = """async () => {
    const found = await (await fetch('data/plugin/images/tags')).json()
    const layout = await (await fetch('data/plugin/custom_scalars/layout')).json()
    return layout.category?.length > 0 && ['rule', 'gradient'].every(run => found[run]?.boundary?.samples > 0)
}"""


@pytest.fixture(scope="module")
def window(browser, address):
    page = browser.new_page()
    page.goto(address)
    page.wait_for_function(LOADED, polling=200)
    return page


@pytest.fixture
def opened(window, address):
    """Opens a tab anew, as large as asked for."""

    def to(tab, width=1600, height=1000):
        window.set_viewport_size({"width": width, "height": height})
        window.goto(f"{address}#{tab}")
        window.reload()
        return window

    return to


def seen(locator):
    """Wait until it is on the page."""
    expect(locator.first).to_be_visible(timeout=PATIENCE)
    return locator.first


def lines_drawn(page, chart, count):
    """Wait until a chart on a canvas, whose content a page does not tell, has lines of so many colours."""
    for _ in range(40):
        pixels = Image.open(io.BytesIO(chart.screenshot())).convert("HSV").get_flattened_data()
        hues = Counter(hue // 16 for hue, saturation, _ in pixels if saturation > 80)
        if sum(number > 30 for number in hues.values()) >= count:
            return
        page.wait_for_timeout(250)
    pytest.fail(f"the chart shows no {count} lines: {hues}")


def test_the_curves_of_both_runs_are_charted(opened):
    page = opened("timeseries")
    charted(page, ["loss/train"], ["rule", "gradient"])
    page.screenshot(path=SHOTS / "time-series.png")


def charted(page, tags, runs):
    """Wait until the time series have a chart of each tag with a line of each run."""
    seen(page.get_by_role("combobox", name="Filter tags (regex)")).fill("loss/")
    page.keyboard.press("Escape")  # closes the list of proposals
    for tag in tags:
        card = seen(page.locator("scalar-card").filter(has_text=tag))
        for run in runs:
            seen(card.get_by_text(run, exact=True))
        lines_drawn(page, card.locator("line-chart .series-view").first, len(runs))


PLAIN = """async () => {
    const found = await (await fetch('data/plugin/scalars/tags')).json()
    return ['rule', 'gradient'].every(run => 'loss/val' in (found[run] ?? {}))
}"""


@pytest.mark.filterwarnings(*plain.CHATTER)
def test_the_curves_of_a_plain_trainer_are_charted(browser, tmp_path):
    """A script with Lightning's own Trainer and logger and torch's own loaders, none of our helpers."""
    lits = {"rule": LitRule(tp.Perceptron(3)), "gradient": LitClassifier(tp.Perceptron(3), "logistic", lr=0.5)}
    for name, lit in lits.items():
        logger = TensorBoardLogger(tmp_path, name=name, version="")
        trainer = pl.Trainer(accelerator="cpu", max_epochs=12, logger=logger, enable_progress_bar=False)
        trainer.fit(lit, plain.loader(plain.TRAIN, 20, shuffle=True), plain.loader(plain.VAL))
    with tensorboard(tmp_path) as address:
        page = browser.new_page()
        page.goto(address)
        page.wait_for_function(PLAIN, polling=200)
        page.set_viewport_size({"width": 1600, "height": 1000})
        page.goto(f"{address}#timeseries")
        page.reload()
        charted(page, ["loss/train", "loss/val"], list(lits))
        page.screenshot(path=SHOTS / "plain-trainer.png")
        page.close()


def test_train_and_validation_of_both_runs_share_a_chart(opened):
    page = opened("custom_scalars")
    for title in (
        "learning curves",
        "rule and gradient",
        "loss",
        "error",
        "mistakes",
        "norm",
        "distance of the nearest sample",
    ):
        seen(page.get_by_text(title, exact=True))
    charts = page.locator("tf-custom-scalar-multi-line-chart-card")
    expect(charts).to_have_count(7)  # the last two are what the theorem says of the rule
    for number, curves in enumerate((4, 4, 2, 2, 2)):  # train and validation twice; the others twice
        seen(charts.nth(number).get_by_text(f"Matches ({curves})"))
    lines_drawn(page, charts.first, 2)
    page.screenshot(path=SHOTS / "custom-scalars.png")


def test_the_boundary_of_both_runs_is_pictured(opened):
    page = opened("images")
    pictures = page.locator("tf-image-loader img")
    expect(pictures).to_have_count(2, timeout=PATIENCE)
    for number in range(2):
        picture = seen(pictures.nth(number))
        page.wait_for_function("image => image.complete && image.naturalWidth == 600", arg=picture.element_handle())
    page.screenshot(path=SHOTS / "images.png")
