"""The page's views of gradient descent and of the two-layer net, as a user drives them in a headless Chromium."""

import re

import pytest
import torch
from chromium import Watch, chromium
from playwright.sync_api import expect

import torchperc as tp
from torchperc.lab.play.page import make_page

pytestmark = pytest.mark.browser

COPIES = """Object.defineProperty(navigator, "clipboard", {
    value: {writeText: async (text) => { window.copied = text; }},
});"""
DESKTOP = {"width": 1360, "height": 1000}
THREE = "-1,-1,0\n-1,-0.75,0\n1,-1,1\n1,-0.75,1\n0,1,2\n0.25,1,2"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile"), viewport=DESKTOP) as window:
        window.add_init_script(COPIES)
        yield window


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    place = tmp_path_factory.mktemp("page") / "play.html"
    place.write_text(make_page(), "utf-8")
    return place.as_uri()


@pytest.fixture
def opened(browser, address):
    """Opens a view; at the end, no page may have said anything on its console or asked for another address."""
    pages = []

    def open_view(name):
        page = browser.new_page()
        pages.append((page, Watch(page)))
        page.goto(f"{address}#view={name}")
        expect(page.locator(f"#view-{name}")).to_be_visible()
        return page

    yield open_view
    for page, watch in pages:
        watch.check(address)
        page.close()


def part(page, name):
    return page.locator(f'[data-test="{name}"]')


def step_of(page, view):
    """Where the view is, and how many steps were made."""
    return tuple(map(int, NUMBER.findall(page.locator(f"#{view}-place").inner_text())))


def weights_of(page):
    """w₁, w₂ and b as the page writes them."""
    text = part(page, "gradient-weights").inner_text().replace("−", "-")
    return [float(number) for number in NUMBER.findall(text)]


def enter(page, field, value):
    page.fill(field, str(value))
    page.locator(field).press("Tab")


def test_stochastic_steps_on_the_criterion_end_where_the_rule_ends(opened):
    page = opened("gradient")
    page.select_option("#gradient-head", "perceptron")
    page.select_option("#gradient-mode", "stochastic")
    page.click("#gradient-more")
    assert (weights_of(page), step_of(page, "gradient")) == ([3, 2, -4], (36, 36))
    expect(page.locator("#gradient-standing")).to_contain_text("The gradient is 0")
    assert part(page, "gradient-errors").inner_text() == "0 / 4"
    page.click("#gradient-play")  # at the end it plays once more
    page.wait_for_function("Number(document.querySelector('#gradient-scrub').value) < 36")
    page.click("#gradient-play")
    page.select_option("#gradient-tie", "strict")  # from zero weights nothing moves
    page.click("#gradient-more")
    expect(page.locator("#gradient-standing")).to_contain_text("zero weights never move")
    assert step_of(page, "gradient") == (4, 4)


def test_play_pause_rewind_scrub_and_keys(opened):
    page = opened("gradient")
    page.select_option("#gradient-speed", "20")
    page.click("#gradient-play")
    page.wait_for_function("Number(document.querySelector('#gradient-scrub').value) >= 4")
    page.click("#gradient-play")
    expect(page.locator("#gradient-play")).to_have_attribute("aria-pressed", "false")
    at, made = step_of(page, "gradient")
    assert at == made >= 4
    page.locator("#gradient-scrub").fill("2")
    assert step_of(page, "gradient") == (2, made)
    page.click("#gradient-rewind")
    assert step_of(page, "gradient") == (0, made)
    page.locator("#gradient-plane").click(position={"x": 2, "y": 2}, button="right")  # away from the fields
    page.locator("h1").click()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert step_of(page, "gradient") == (1, made)
    page.keyboard.press("End")
    assert step_of(page, "gradient") == (51, 51)
    page.keyboard.press("Home")
    assert step_of(page, "gradient") == (0, 51)
    page.keyboard.press("Space")
    expect(page.locator("#gradient-play")).to_have_attribute("aria-pressed", "true")
    page.click("#tab-rule")  # playing stops with the view
    page.click("#tab-gradient")
    expect(page.locator("#gradient-play")).to_have_attribute("aria-pressed", "false")


def test_the_surface_follows_the_descent_or_a_chosen_bias(opened):
    page = opened("gradient")
    page.select_option("#gradient-head", "lms")
    page.click("#gradient-more")
    surface = page.locator("#gradient-surface")
    assert surface.locator("image.heat").count() == 1
    assert surface.locator(".contour").count() == 9
    assert surface.locator(".optimum").count() == 1
    assert page.locator(".descent-path").first.get_attribute("d").count(",") == 51
    assert float(part(page, "gradient-loss").inner_text()) == pytest.approx(0.125, abs=0.01)
    assert part(page, "gradient-best").inner_text() == "0.125"
    page.locator("#gradient-bias").fill("0.5")
    expect(page.locator("#gradient-follow")).not_to_be_checked()
    assert part(page, "gradient-biasText").inner_text() == "0.5"
    page.locator("#gradient-follow").check()
    assert float(part(page, "gradient-biasText").inner_text().replace("−", "-")) == pytest.approx(-1.5, abs=0.1)
    page = opened("gradient")  # a click into the surface starts there
    box = page.locator("#gradient-surface").bounding_box()
    page.locator("#gradient-surface").click(position={"x": 0.75 * box["width"], "y": 0.25 * box["height"]})
    start = [float(page.input_value(f"#gradient-start-{k}")) for k in range(3)]
    assert start == pytest.approx([0.5, 0.5, 0], abs=0.02)
    assert weights_of(page) == pytest.approx(start, rel=1e-5)
    assert step_of(page, "gradient") == (0, 0)
    page.click("#gradient-start-far")
    assert weights_of(page) == [-2, 1.5, 0.5]


def test_a_learning_rate_beyond_the_limit_diverges_and_says_so(opened):
    page = opened("gradient")
    page.select_option("#gradient-head", "lms")
    limit = tp.theory.step_limit("lms", tp.data.gate("AND", dtype=torch.float64)[0])
    expect(page.locator("#gradient-limit")).to_contain_text(f"{limit:.4g}")
    enter(page, "#gradient-lr", 3)
    expect(page.locator("#gradient-limit")).to_contain_text("above 2/L")
    page.click("#gradient-more")
    expect(page.locator("#gradient-standing")).to_contain_text("Diverged")
    assert step_of(page, "gradient")[0] < 50


def test_more_than_two_classes_are_one_against_the_rest(opened):
    page = opened("gradient")
    page.click("#csv")
    page.fill("#csv-text", THREE)
    page.click("#csv-use")
    expect(page.locator("#gradient-many")).to_contain_text("class 1 is +1, all others are −1")
    page.select_option("#gradient-positive", "2")
    expect(page.locator("#gradient-many")).to_contain_text("class 2 is +1")
    page.click("#gradient-more")
    assert part(page, "gradient-errors").inner_text() == "0 / 6"
    page.click("#clear")
    expect(page.locator("#gradient-standing")).to_contain_text("Put down points")
    expect(page.locator("#gradient-surface")).to_be_hidden()
    page.click("#tab-twolayer")
    expect(page.locator("#twolayer-standing")).to_contain_text("Put down points")
    expect(page.locator("#twolayer-hiddenPlane")).to_be_hidden()


def test_the_script_makes_the_same_steps(opened):
    page = opened("gradient")
    page.select_option("#gradient-mode", "minibatch")
    page.select_option("#gradient-order", "shuffled")
    page.click("#gradient-start-far")
    page.click("#gradient-more")
    page.click("#copy-python")
    script = page.input_value("#python-text")
    assert page.evaluate("window.copied") == script
    names = {}
    exec(script, names)
    net = names["net"]
    assert weights_of(page) == pytest.approx([*net.weight[0].tolist(), net.bias.item()], rel=1e-5)


def test_a_link_brings_the_descent_back(opened, browser):
    page = opened("gradient")
    page.select_option("#gradient-head", "perceptron")
    page.select_option("#gradient-mode", "stochastic")
    for _ in range(5):
        page.click("#gradient-step")
    page.click("#copy-link")
    page.wait_for_function("window.copied")
    weights, link = weights_of(page), page.evaluate("window.copied")
    other = browser.new_page()
    other.goto(link)
    assert (step_of(other, "gradient"), weights_of(other)) == ((5, 5), weights)
    other.close()


# --- the two-layer net ---


def test_the_net_begins_with_xor_and_learns_it(opened):
    page = opened("twolayer")
    expect(page.locator("#preset")).to_have_value("XOR")
    assert part(page, "twolayer-errors").inner_text() != "0 / 4"
    page.click("#twolayer-more")
    expect(part(page, "twolayer-verdict")).to_have_attribute("data-standing", "solved")
    assert part(page, "twolayer-errors").inner_text() == "0 / 4"
    net = tp.lab.xor.train([0], steps=100, dtype=torch.float64).net(0)
    rows = page.locator("#twolayer-weights tbody tr")
    for k in range(2):
        shown = [float(cell.replace("−", "-")) for cell in rows.nth(k).locator("td").all_inner_texts()]
        own = [*net.layers[0].weight[k].tolist(), net.layers[0].bias[k].item(), net.layers[1].weight[0, k].item()]
        assert shown == pytest.approx(own, rel=1e-3)
    assert page.locator("#twolayer-hiddenPlane .point").count() == 4
    assert page.locator("#twolayer-plane .line.unit").count() == 2
    page.click("#undo")
    expect(page.locator("#preset")).to_have_value("AND")
    page.click("#twolayer-xor")
    expect(page.locator("#preset")).to_have_value("XOR")


def test_the_net_has_starts_by_name(opened):
    page = opened("twolayer")
    for start, standing in (("stuck", "plateau"), ("dead", "dead"), ("relu", "solved")):
        page.select_option("#twolayer-start", start)
        for _ in range(5):
            page.click("#twolayer-more")
        expect(part(page, "twolayer-verdict")).to_have_attribute("data-standing", standing)
    made = step_of(page, "twolayer")[1]
    page.click("#twolayer-rewind")
    page.click("#twolayer-step")
    assert step_of(page, "twolayer") == (1, made)


def test_more_units_are_looked_at_two_at_a_time(opened):
    page = opened("twolayer")
    page.select_option("#twolayer-hidden", "4")
    page.select_option("#twolayer-activation", "sigmoid")
    assert page.locator("#twolayer-plane .line.unit").count() <= 4
    page.select_option("#twolayer-axisX", "3")
    assert page.locator("#twolayer-hiddenPlane .axis-name").all_text_contents() == ["h₄", "h₂"]
    page.select_option("#twolayer-axisY", "3")
    assert page.locator("#twolayer-hiddenPlane .axis-name").all_text_contents() == ["h₁", "h₄"]
    before = part(page, "twolayer-loss").inner_text()
    page.click("#twolayer-newSeed")
    assert part(page, "twolayer-loss").inner_text() != before
    page.select_option("#twolayer-mode", "stochastic")
    page.click("#twolayer-step")
    page.click("#copy-python")
    names = {}
    exec(page.input_value("#python-text"), names)
    loss = names["head"].loss(names["net"](names["X"]), names["y"]).item()
    assert float(part(page, "twolayer-loss").inner_text()) == pytest.approx(loss, rel=1e-4)
