"""Reports in a headless Chromium: on a phone and on a desk, light and dark, nothing is cut off and all can be read."""

import pytest
import torch
from chromium import SHOTS, chromium

import torchperc as tp
from torchperc.reports import Report, Section, Table, report

pytestmark = pytest.mark.browser
LONG = [f"{k}: a name of exactly forty characters, yes"[:40] for k in range(12)]


def of_xor():
    X, y = tp.data.gate("XOR")
    config = (
        "torchperc fit --config runs/a-folder-with-a-long-name/config.yaml --out runs/a-folder-with-a-long-name-again"
    )
    result = tp.RuleTrainer(20).fit(tp.Perceptron(2), X, y)
    return report(result, X, y, title="XOR by rule", held_out={"test": (X, y)}, config=config)


def of_many_classes():
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(120) % 12
    X = 4 * torch.randn(12, 12, generator=generator)[y] + torch.randn(120, 12, generator=generator)
    result = tp.RuleTrainer().fit(tp.MulticlassPerceptron(12, 12), X, y)
    return report(result, X, y, title="twelve classes", names=LONG, labels=LONG, held_out={"test": (X, y)})


def of_a_wide_table():
    return Report("wide", "", [Section("one", [Table(["sample", *"abcde"], [[*"012345"]])])])


PAGES = {"xor": of_xor, "many-classes": of_many_classes}


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """Opens a page at a width and in a colour scheme; a picture of it is kept."""
    folder = tmp_path_factory.mktemp("pages")
    for name, make in {**PAGES, "wide": of_a_wide_table}.items():
        make().save(folder / f"{name}.html")
    with chromium(tmp_path_factory.mktemp("profile")) as window:
        page = window.new_page()

        def to(name, width, scheme="light"):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            page.goto((folder / f"{name}.html").as_uri())
            page.screenshot(path=SHOTS / f"report-{name}-{width}-{scheme}.png", full_page=True)
            return page

        yield to


OVERFLOW = """() => {
    const wider = element => element.scrollWidth > element.clientWidth + 1
    const blocks = [...document.querySelectorAll('.wide:has(table), pre, p, figcaption, td, nav')]
    return [document.documentElement, ...blocks].filter(wider).map(element => element.innerText.slice(0, 60))
}"""
PICTURES = (
    "() => [...document.images].map(image => [image.naturalWidth > 0, image.clientWidth / image.getAttribute('width')])"
)
COLOURS = """() => ['body', 'h2', '.lead', 'nav a', 'figcaption', 'th', 'td', 'pre'].flatMap(name => {
    const element = document.querySelector(name)
    if (!element) return []
    let below = element
    while (getComputedStyle(below).backgroundColor === 'rgba(0, 0, 0, 0)') below = below.parentElement
    return [[name, getComputedStyle(element).color, getComputedStyle(below).backgroundColor]]
})"""


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [360, 420, 1280])
def test_nothing_is_cut_off(opened, name, width):
    page = opened(name, width)
    assert page.evaluate(OVERFLOW) == []
    shown = page.evaluate(PICTURES)
    assert shown
    assert all(loaded and scale >= 0.49 for loaded, scale in shown)  # half as large, numbers can be read


def brightness(colour):
    """Relative luminance, by which the rules of accessible pages measure contrast."""
    parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_text_can_be_read_in_either_colour_scheme(opened, name, scheme):
    page = opened(name, 360, scheme)
    found = page.evaluate(COLOURS)
    assert len(found) >= 6
    for part, ink, paper in found:
        low, high = sorted((brightness(ink), brightness(paper)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, part
        assert (brightness(paper) > 0.5) == (scheme == "light")
    behind = page.evaluate("() => getComputedStyle(document.querySelector('img')).backgroundColor")
    assert behind == "rgb(255, 255, 255)"  # pictures keep their light ground


def test_a_wide_table_becomes_cards_on_a_phone(opened):
    page = opened("wide", 360)
    cell = page.locator("table.cards td").first
    assert cell.evaluate("element => getComputedStyle(element, '::before').content") == '"sample"'
    assert not page.locator("table.cards th").first.is_visible()
    assert opened("wide", 1280).locator("table.cards th").first.is_visible()
