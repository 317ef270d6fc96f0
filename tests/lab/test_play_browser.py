"""The interactive page in a headless Chromium: points, the log, conventions, proofs, what goes in and out of it."""

import base64
import json
import re
import subprocess
import sys

import pytest
import torch
from chromium import SHOTS, Watch, chromium, width_of
from PIL import Image
from playwright.sync_api import expect

import torchperc as tp

pytestmark = pytest.mark.browser

HALF = 1.5  # the plane shows [−1.5, 1.5]²
PHONE = {"width": 360, "height": 740}
DESKTOP = {"width": 1280, "height": 900}
VIEWS = ("rule", "compare", "proof", "gradient", "twolayer")
AND = tp.data.gate("AND")


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "play.html"
    path.write_text(tp.lab.play.Play(tp.lab.play.content()).html, "utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("profile"), viewport=DESKTOP) as window:
        window.grant_permissions(["clipboard-read", "clipboard-write"])
        yield window


@pytest.fixture
def opened(address, browser):
    """Opens the page, and looks at its end whether it was silent and left the network alone."""
    pages = []

    def to(fragment="", scheme="light", size=DESKTOP, at=address, **chosen):
        page = browser.new_page()
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size(size)
        pages.append((page, Watch(page), at))
        page.goto(f"{at}#{fragment}")
        return choose(page, **chosen)

    yield to
    for page, watch, at in pages:
        page.close()
        watch.check(at)


def pixel(page, x, y, plane="rule-plane"):
    """Where a point of the usual frame is on the screen."""
    page.locator(f"#{plane}").scroll_into_view_if_needed()
    box = page.locator(f"#{plane}").bounding_box()
    return box["x"] + (x + HALF) / (2 * HALF) * box["width"], box["y"] + (HALF - y) / (2 * HALF) * box["height"]


def put(page, x, y):
    page.mouse.click(*pixel(page, x, y))


def drag(page, start, end, plane="rule-plane", during=()):
    """Drag a point, and look at what the page shows before it is let go."""
    page.mouse.move(*pixel(page, *start, plane))
    page.mouse.down()
    page.mouse.move(*pixel(page, *end, plane), steps=5)
    shows(page, dict(during))
    page.mouse.up()


def points(page, plane="rule-plane"):
    """Coordinates and classes of the points, as they are drawn."""
    found = page.locator(f"#{plane} .point").evaluate_all("all => all.map(({dataset: {x, y, label}}) => [x, y, label])")
    return [(float(x), float(y), int(label)) for x, y, label in found]


def near(found, wanted):
    """Within a step of the grid, which is about three pixels, and on the grid."""
    assert len(found) == len(wanted)
    for have, want in zip(found, wanted, strict=True):
        assert have[2] == want[2]
        assert all(abs(a - b) <= 1 / 64 and (a * 64).is_integer() for a, b in zip(have[:2], want[:2], strict=True))


def click(page, *names, then=(), reading=()):
    """Click on these in turn, and look at what the page shows then."""
    for name in names:
        page.click(f"#{name}")
    shows(page, dict(then))
    reads(page, dict(reading))


def choose(page, then=(), reading=(), **fields):
    """Choose in lists, whose names have _ for -, and look at what the page shows then."""
    for name, value in fields.items():
        page.select_option(f"#{name.replace('_', '-')}", value)
    click(page, then=then, reading=reading)
    return page


def copied(page, what):
    """What a button puts on the clipboard."""
    page.click(f"#copy-{what}")
    shows(page, {"#notice": "on the clipboard"})
    return page.evaluate("navigator.clipboard.readText()")


def enter(page, field, value):
    page.fill(field, str(value))
    page.locator(field).press("Enter")


def shows(page, found):
    """Every place holds its text, or is there that often."""
    for place, wanted in found.items():
        there = expect(page.locator(place))
        there.to_have_count(wanted) if isinstance(wanted, int) else there.to_contain_text(wanted)


def reads(page, found):
    """Every place has this text and no other."""
    for place, wanted in found.items():
        expect(page.locator(place)).to_have_text(wanted)


def numbers(page, place):
    """The numbers that a place shows."""
    text = page.locator(place).first.inner_text().replace("−", "-")
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", text)]


def run(X, y, start=None, **conventions):
    """The same run by torchperc."""
    net = tp.Perceptron(2, dtype=torch.float64)
    if start is not None:
        with torch.no_grad():
            net.weight.copy_(torch.tensor([start[:2]]))
            net.bias.copy_(torch.tensor(start[2:]))
    result = tp.RuleTrainer(**conventions).fit(net, X.double(), y)
    return result, net


def compared(page, result, net):
    """The page shows the run that torchperc made."""
    click(page, "end", reading={"[data-test=mistakes]": str(result.mistakes), "[data-test=epochs]": str(result.epochs)})
    wanted = [*net.weight[0].tolist(), net.bias.item()]
    assert numbers(page, "[data-test=weights]") == pytest.approx(wanted, rel=1e-5)


def test_points_are_put_down_on_quarters_dragged_and_deleted(opened):
    page = opened()
    click(page, "clear")
    expect(page.get_by_text("Put down points of two classes")).to_be_visible()
    click(page, "class-0")
    put(page, -0.5, -0.25)
    page.keyboard.press("2")
    put(page, 0.5, 0.75)
    put(page, 1, -1)
    near(points(page), [(-0.5, -0.25, 0), (0.5, 0.75, 1), (1, -1, 1)])
    drag(page, (0.5, 0.75), (1, 0.25))
    near(points(page), [(-0.5, -0.25, 0), (1, 0.25, 1), (1, -1, 1)])
    page.mouse.click(*pixel(page, 1, -1), button="right")
    near(points(page), [(-0.5, -0.25, 0), (1, 0.25, 1)])
    for x, y in ((1, 0.25), (0.5, 0.75)):  # the whole drag is one step back
        page.keyboard.press("Control+z")
        near(points(page), [(-0.5, -0.25, 0), (x, y, 1), (1, -1, 1)])
    page.keyboard.press("Control+y")
    click(page, "mode-delete")
    put(page, 1, 0.25)
    near(points(page), [(-0.5, -0.25, 0), (1, -1, 1)])
    put(page, 0, 0)  # nothing there, and nothing is put down in this mode
    assert len(points(page)) == 2
    page = opened()
    put(page, -0.59, 0.7)
    assert points(page)[-1][:2] == (-0.5, 0.75)
    page.keyboard.down("Shift")
    put(page, -1.09, -0.7)
    page.keyboard.up("Shift")
    x, y, _ = points(page)[-1]
    assert (x, y) == (round(64 * x) / 64, round(64 * y) / 64) != (round(4 * x) / 4, round(4 * y) / 4)


def test_a_run_follows_its_points_and_classes(opened):
    page = opened("preset=XOR")
    shows(page, {"[data-test=verdict]": 0})  # what will happen is not told before it happens
    click(page, "end", then={"[data-test=verdict]": "cycling"})
    drag(page, (1, 1), (-0.5, 0.5))  # now a line does it
    shows(page, {"[data-test=verdict]": "separated"})
    X = torch.tensor([[x, y] for x, y, _ in points(page)])
    labels = torch.tensor([2 * label - 1 for *_, label in points(page)])
    compared(page, *run(X, labels))
    page = opened()
    for _ in range(2):
        click(page, "more-classes")
    expect(page.locator("#more-classes")).to_be_disabled()
    put(page, -1, -1)
    assert points(page)[-1] == (-1, -1, 3)
    shows(page, {"#rule-step": "Start"})
    click(page, "step", then={"#rule-step": "w₀ ← w₀ + c·x"})
    click(page, "fewer-classes", "fewer-classes")
    expect(page.locator("#fewer-classes")).to_be_disabled()
    assert len(points(page)) == 4


def test_plane_and_transport_are_seen_on_a_phone_plane_and_step_at_a_beamer(opened):
    page = opened(size={"width": 390, "height": 844})
    for view, button in (("rule", "#play"), ("gradient", "#gradient-play"), ("twolayer", "#twolayer-play")):
        page.click(f"#tab-{view}")
        box = page.locator(button).bounding_box()
        assert box["y"] + box["height"] <= 844, view
    for width, height in ((1024, 768), (1920, 1080)):
        page = opened(size={"width": width, "height": height})
        page.keyboard.press("ArrowRight")
        for name in ("#rule-plane", "#rule-step"):
            box = page.locator(name).bounding_box()
            assert box["y"] + box["height"] <= height


def test_every_example_is_shown_with_its_conventions(opened):
    page = opened("preset=note-e")
    expect(page.locator("#biasStep")).to_have_value("radius")
    choose(page, preset="AND")
    expect(page.locator("#biasStep")).to_have_value("unit")
    choose(page, tie="sign", preset="OR")
    expect(page.locator("#tie")).to_have_value("sign")  # what the user has chosen stays
    ids = page.locator("#preset option").evaluate_all("all => all.map(({value}) => value)")
    assert {"AND", "OR", "NAND", "XOR", "moons", "noisy-blobs", "parity-3", "note-a", "note-e"} <= set(ids)
    for name in filter(None, ids):
        page.select_option("#preset", name)
        assert len(points(page)) >= 2
        reads(page, {"#rule-step .step-title": "Start"})
        click(page, "end")
        expect(page.locator("[data-test=verdict]")).not_to_be_empty()


def test_the_sixth_mistake_of_and_word_by_word_and_its_vectors_in_the_plane(opened):
    page = opened()
    compared(page, *run(*AND))
    click(page, "rewind")
    for _ in range(6):
        click(page, "step")
    lines = page.locator("#rule-step dd").all_inner_texts()
    assert [re.sub(r"\s+", " ", line) for line in lines] == [
        "x = (0, 1), y = −1",
        "s = w·x + b = 2·0 + 1·1 + (−1) = 0",
        "y·s = (−1)·0 = 0 ≤ 0",
        "c = η·y = 1·(−1) = −1",
        "w ← w + c·x = (2, 1) + (−1)·(0, 1) = (2, 0)",
        "b ← b + c = −1 + (−1) = −2",
    ]
    shows(page, {"#live": "Mistake 6 of 18: sample 1, score 0"})
    cells = page.locator("#log-table tr[aria-current=step] td").all_inner_texts()
    assert (cells[1], cells[5:8]) == ("1", ["−1", "(2, 0)", "−2"])
    shows(page, {"#rule-plane .ring.mistake": 1, "#rule-plane .line.before": 1})
    page = opened()
    for example in ("AND", "note-e", "three"):
        page.select_option("#preset", example)
        page.evaluate("document.activeElement.blur()")
        for _ in range(8):
            page.keyboard.press("ArrowRight")
            assert page.evaluate(OUTSIDE) == 0


def test_step_back_scrub_rewind_and_play(opened):
    page = opened()
    click(page, "step", "step", "back", reading={"#place": "1 of 18"})
    page.locator("#scrub").fill("12")
    shows(page, {"#rule-step .step-title": "Mistake 12 of 18"})
    page.locator("#log-table tr[data-t='5']").click()
    reads(page, {"#place": "5 of 18"})
    click(page, "rewind", reading={"#rule-step .step-title": "Start"})
    choose(page, speed="100")
    click(page, "play", reading={"#place": "18 of 18"})
    expect(page.locator("#play")).to_have_attribute("aria-pressed", "false")  # it stops at the end, and says where
    shows(page, {"#live": "Mistake 18 of 18"})
    choose(page, preset="moons", speed="5")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press(" ")
    expect(page.locator("#play")).to_have_attribute("aria-label", re.compile("Pause"))
    page.keyboard.press(" ")
    at = page.locator("#place").inner_text()
    expect(page.locator("#play")).to_have_attribute("aria-label", re.compile("Play"))
    assert page.locator("#place").inner_text() == at


def test_averaged_voted_and_pocket_are_laid_over(opened):
    page = opened("preset=noisy-blobs")
    click(page, "end")
    for name in ("averaged", "voted", "pocket"):
        page.locator(f"#overlay-{name}").check()
    shows(page, {"#rule-plane .line.averaged": 1, "#rule-plane .line.pocket": 1, "#rule-plane image.voted": 1})
    found = points(page)
    X, y = torch.tensor([[a, b] for a, b, _ in found]).double(), torch.tensor([2 * c - 1 for *_, c in found])
    log = run(X, y)[0].log
    for name, model in (("averaged", log.averaged()), ("voted", log.voted()), ("pocket", log.pocket())):
        wrong = int((model.predict(X) != y).sum())
        expect(page.locator(f".overlay-{name} small")).to_have_text(f"{wrong} of {len(y)} wrong")
    click(page, "clear", then={"[data-test=verdict]": 0, "#log-table": 0})
    assert "wrong" not in page.locator(".overlays").inner_text()
    expect(page.get_by_text("those around the current one")).to_have_count(0)


CONVENTIONS = [
    ("biasStep", "bias_step", "radius"), ("order", "order", "shuffled"), ("lr", "lr", 0.5), ("margin", "margin", 2.0),
    ("maxEpochs", "max_epochs", 3), ("seed", "seed", 7), ("margin", "margin", 0.0), ("tie", "tie", "sign"),
]  # fmt: skip


def test_conventions_are_switched(opened):
    page, given = opened(), {}
    expect(page.locator("#seed")).to_be_disabled()
    for field, name, value in CONVENTIONS:
        if isinstance(value, str):
            page.select_option(f"#{field}", value)
        else:
            enter(page, f"#{field}", f"{value:g}")
        given[name] = value
        compared(page, *run(*AND, **given))
    shows(page, {"#what-changed": "mistakes"})
    for column, value in enumerate((-1, 0.5, 2)):
        enter(page, f"#start-0-{column}", value)
    compared(page, *run(*AND, start=[-1, 0.5, 2], **given))
    shows(page, {"#rule-bracket": "from zero weights only"})
    click(page, "start-zero")
    compared(page, *run(*AND, **given))
    enter(page, "#lr", "-1")
    shows(page, {"#notice": "not possible"})
    compared(page, *run(*AND, **given))
    page.select_option("#dialect", label="lecture note E")
    shows(page, {"[data-test=verdict]": "nothing ever moves"})


def test_two_conventions_side_by_side(opened):
    page = opened("view=compare")
    expect(page.locator("#compare-summary")).to_contain_text(
        "part at mistake 12: Left corrects sample 3 (score 0); Right has ended"
    )
    differences = page.locator("[data-test=differences]").inner_text()
    assert re.search(r"mistakes in all\s+18\s+11", differences)
    choose(page, second_order="shuffled", second_biasStep="radius")
    result, _ = run(*AND, tie="sign", order="shuffled", bias_step="radius")
    click(page, "second-end", reading={"#compare-second [data-test=mistakes]": str(result.mistakes)})
    click(page, "go-there")
    places = [page.locator(f"#{side}-place").inner_text() for side in ("first", "second")]
    assert len({place.split()[0] for place in places}) == 1
    click(page, "second-end")
    page.click("#second-back")  # each side has its own cursor
    total = result.mistakes
    reads(page, {"#second-place": f"{total - 1} of {total}"})
    click(page, "first-rewind", reading={"#first-place": "0 of 18", "#second-place": f"{total - 1} of {total}"})
    click(page, "swap")
    expect(page.locator("#first-tie")).to_have_value("sign")
    reads(page, {"#second-place": "0 of 18"})
    click(page, "both-step", reading={"#second-place": "1 of 18"})


def test_and_has_a_widest_strip_and_xor_a_point_in_both_hulls(opened):
    page = opened("view=proof")
    shows(page, {"[data-test=decision]": "Separable", "#proof-text": "γ = √(1/8) ≈ 0.353553"})
    shows(page, {"#proof-text": "w = (2, 2), b = −3", "#proof-plane .ring.support": 3, "#proof-plane .strip": 1})
    shows(page, {"#proof-plane .line.now": 1, "#proof-plane .line.edge": 2})
    assert page.locator("#proof-check tbody td:last-child").all_inner_texts() == ["3", "1", "1", "1"]
    choose(page, then={"[data-test=decision]": "Not separable", "#proof-text": "(1/2, 1/2)"}, preset="XOR")
    shows(page, {"#proof-text": "1/2·(0, 1) + 1/2·(1, 0)", "#proof-plane .hull": 2})
    drag(page, (1, 1), (-0.5, 0.5), "proof-plane", during={"[data-test=decision]": "Separable"})


def test_classes_that_touch_and_several_classes_are_proved(opened):
    data = {"points": [[0, 0], [1, 0], [0.5, 0], [0, 1], [1, -1]], "labels": [0, 0, 1, 1, 0], "classes": 2}
    page = opened(link(data=data, view="proof"))
    shows(page, {"[data-test=decision]": "the classes touch", "#proof-text": "w = (0, 2), b = 0"})
    assert page.locator("#proof-plane .line.now").evaluate("(line) => line.getBBox().height") == 0
    choose(page, then={"[data-test=decision]": "Separable"}, preset="three")
    first = next((x, y) for x, y, label in points(page, "proof-plane") if label == 0)
    drag(page, first, (0.75, -0.5), "proof-plane")  # into the middle of another class
    shows(page, {"[data-test=decision]": "Not separable"})
    assert page.locator("[data-test=certificate] tbody tr").count() >= 2


CSV = "height,weight,kind\n0.5,1,cat\n-1,0.25,dog\n1.5,-0.75,cat\n"


def test_csv_is_pasted_and_dropped_and_off_the_grid_the_page_says_so(opened):
    page = opened()
    click(page, "csv")
    page.locator("#csv-text").fill("1, 2, a\n3, oops, b")
    click(page, "csv-use", then={"#csv-dialog [role=alert]": "line 2: “oops” is no number"})
    page.locator("#csv-text").fill(CSV)
    click(page, "csv-use")
    assert points(page) == [(0.5, 1, 0), (-1, 0.25, 1), (1.5, -0.75, 0)]
    shows(page, {"#class-1": "dog"})
    expect(page.locator("#rule-plane .axis-name").first).to_have_text("height")
    page.evaluate("text => navigator.clipboard.writeText(text)", "0.1;0,2;-1\n0.3;12;1\n")
    page.keyboard.press("Control+v")
    shows(page, {"#rule-plane .point": 2})
    assert points(page) == [(0.1, 0.2, 0), (0.3, 12, 1)]  # kept as they are
    expect(page.locator("[data-test=not-exact]")).to_be_visible()
    shows(page, {"#about": "different scales"})
    page = opened()
    page.evaluate(DROP, CSV)
    shows(page, {"#notice": "3 points of 2 classes"})
    assert len(points(page)) == 3
    for count, said, text in (
        (3, "at least two classes", "1,2,a\n3,4,a\n"),
        (2, "The file has 4 columns", "a,b,c,kind\n1,2,3,x\n4,5,6,y\n"),
        (2, "1001 samples; the page shows 1000 at most", "\n".join(f"{i},{i % 7},{i % 2}" for i in range(1001))),
    ):
        page.evaluate(DROP, text)
        shows(page, {"#notice": said, "#rule-plane .point": count})


DROP = """text => {
    const transfer = new DataTransfer()
    transfer.items.add(new File([text], 'points.csv', {type: 'text/csv'}))
    document.body.dispatchEvent(new DragEvent('drop', {dataTransfer: transfer, bubbles: true, cancelable: true}))
}"""


def test_the_copied_script_makes_the_same_run(opened):
    page = opened("preset=four", tie="sign", order="shuffled")
    page.locator("#seed").fill("3")
    enter(page, "#start-0-2", "0.25")
    click(page, "end")
    mistakes, epochs = (page.locator(f"[data-test={name}]").inner_text() for name in ("mistakes", "epochs"))
    script = copied(page, "python")
    assert script == page.locator("#python-text").input_value()
    made = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert made.stdout.startswith(f"{mistakes} mistakes in {epochs} epochs: an epoch without a mistake")
    assert "separable: True" in made.stdout


def test_a_link_brings_everything_back(opened):
    page = opened(tie="strict")
    enter(page, "#start-0-0", "-2.5")
    put(page, 1.25, -0.5)
    click(page, "step")
    page.locator("#overlay-pocket").check()
    before = points(page), page.locator("#place").inner_text()
    other = opened(copied(page, "link").split("#")[1])
    assert (points(other), other.locator("#place").inner_text()) == before
    assert [other.locator(name).input_value() for name in ("#tie", "#start-0-0")] == ["strict", "-2.5"]
    expect(other.locator("#overlay-pocket")).to_be_checked()
    other.reload()
    assert points(other) == before[0]


TWO = {"points": [[0, 0], [1, 1]], "labels": [0, 1], "classes": 2}
HTML = "</script><img src=x onerror='window.hit = 1'><script>window.hit = 2</script><!--"


def link(**state):
    return "state=" + base64.urlsafe_b64encode(json.dumps(state).encode()).decode().rstrip("=")


def test_a_link_brings_nothing_that_the_page_has_no_field_for(opened):
    for convention in ({"tie": '");import os;("'}, {"seed": "0)\nimport os"}, {"maxEpochs": "1"}):
        page = opened(link(data=TWO, conventions=convention, second=convention))
        shows(page, {"#notice": "could not be read"})
        click(page, "copy-python")
        assert "import os" not in page.locator("#python-text").input_value()
        assert len(points(page)) == 4
    for state in STRANGE:
        page = opened(link(data=TWO, **state))
        expect(page.locator(".view:not([hidden]) svg.plane .point")).not_to_have_count(0)
        click(page, "tab-rule")
        assert points(page) == [(0, 0, 0), (1, 1, 1)]
        click(page, "step")
        expect(page.locator(".step-title").first).to_contain_text("Mistake 1")


STRANGE = [
    {"view": "none"}, {"overlays": None}, {"gradient": None, "view": "gradient"}, {"twolayer": 7, "view": "twolayer"},
    {"cursor": HTML}, {"mode": HTML, "pen": 77, "recorded": True, "preset": HTML},
    {"conventions": {"maxEpochs": 1e15, "order": "shuffled"}},
]  # fmt: skip


def harmless(page):
    for view in VIEWS:
        page.click(f"#tab-{view}")
        page.keyboard.press("ArrowRight")
    click(page, "copy-python")
    found = page.evaluate("[window.hit, document.querySelectorAll('img').length, document.scripts.length]")
    assert found == [None, 0, 2]


def test_names_in_links_and_files_are_text(opened):
    names = {"names": [HTML, HTML], "classNames": [HTML, "b"]}
    page = opened(link(data={**TWO, **names}))
    expect(page.locator("#class-0")).to_contain_text(HTML)
    harmless(page)
    page = opened()
    page.evaluate(DROP, f'x,y,label\n0,0,"{HTML}"\n1,1,"say ""so"""\n')
    shows(page, {"#class-0": HTML, "#class-1": 'say "so"'})
    harmless(page)


def downloaded(page, name):
    click(page, "save")
    with page.expect_download() as found:
        page.click(f"#save-{name}")
    return found.value


def test_points_log_and_picture_are_saved(opened, tmp_path):
    page = opened("preset=three")
    before = points(page)
    downloaded(page, "points").save_as(tmp_path / "points.csv")
    table = tp.data.read(tmp_path / "points.csv")
    assert table.X.tolist() == [[x, y] for x, y, _ in before]
    click(page, "clear", "csv")
    page.locator("#csv-file").set_input_files(tmp_path / "points.csv")
    expect(page.locator("#rule-plane .point")).to_have_count(len(before))
    assert points(page) == before
    choose(page, preset="AND", biasStep="radius")
    downloaded(page, "log").save_as(tmp_path / "log.json")
    assert tp.MistakeLog.load(tmp_path / "log.json").equals(run(*AND, bias_step="radius")[0].log)
    file = downloaded(page, "picture")
    assert file.suggested_filename == "torchperc-rule.png"
    file.save_as(tmp_path / "rule.png")
    picture = Image.open(tmp_path / "rule.png").convert("RGB")
    assert picture.width >= 1000
    assert {(0, 114, 178), (230, 159, 0)} <= {colour for _, colour in picture.getcolors(1 << 20)}  # of the classes


def test_everything_by_keyboard(opened):
    page = opened()
    page.keyboard.press("1")
    expect(page.locator("#class-0")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("a")  # a point in the middle, focused
    assert points(page)[4] == (0, 0, 0)
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowUp")
    assert points(page)[4] == (3 / 64, 8 / 64, 0)
    page.keyboard.press("c")
    assert points(page)[4] == (3 / 64, 8 / 64, 1)
    focused = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert focused == "point 4, class +1, at 0.046875, 0.125"
    page.keyboard.press("Delete")
    assert len(points(page)) == 4
    page.evaluate("document.activeElement.blur()")
    for key, place in (("End", 18), ("ArrowLeft", 17), ("Home", 0)):
        page.keyboard.press(key)
        reads(page, {"#place": f"{place} of 18"})
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.locator("#tab-rule").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#view-compare")).to_be_visible()


def test_every_control_has_a_name_and_every_id_is_used_once(opened):
    page = opened()
    for view in VIEWS:
        page.click(f"#tab-{view}")
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('button, input, select, textarea, [role=button], svg[role]')].filter(
            (each) => !(each.getAttribute('aria-label') || each.textContent.trim() || each.labels?.length)
        ).map((each) => each.outerHTML)"""
    )
    assert nameless == []
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(({id}) => id)")
    assert sorted(ids) == sorted(set(ids))
    text = page.locator("#app").inner_text()
    assert re.findall(r"\b[a-z]+\.[a-z]+[A-Z]?\w*\b", text.replace("e.g.", "")) == []  # no key of a text in its place


class Finger:
    """Touches a page as a phone does."""

    def __init__(self, page):
        self.session = page.context.new_cdp_session(page)
        self.session.send("Emulation.setTouchEmulationEnabled", {"enabled": True})

    def send(self, kind, *places):
        touches = [{"x": x, "y": y} for x, y in places]
        self.session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touches})

    def tap(self, place):
        self.send("touchStart", place)
        self.send("touchEnd")

    def drag(self, start, end):
        self.send("touchStart", start)
        for part in (0.25, 0.5, 0.75, 1):
            self.send("touchMove", tuple(a + part * (b - a) for a, b in zip(start, end, strict=True)))
        self.send("touchEnd")


def test_a_finger_puts_down_drags_and_deletes(opened):
    page = opened(size=PHONE)
    finger = Finger(page)
    click(page, "clear", "class-1")
    finger.tap(pixel(page, 0.5, 0.5))
    shows(page, {"#rule-plane .point": 1})
    finger.drag(pixel(page, *points(page)[0][:2]), pixel(page, -0.5, -1))
    shows(page, {"#rule-plane .point": 1})
    (x, y, label) = points(page)[0]
    assert (abs(x + 0.5) < 1 / 32, abs(y + 1) < 1 / 32, label) == (True, True, 1)
    click(page, "mode-delete")
    finger.tap(pixel(page, x, y))
    shows(page, {"#rule-plane .point": 0})
    choose(page, preset="AND")
    finger.send("touchStart", pixel(page, 1, 1))
    shows(page, {"#rule-plane .point": 3})
    finger.send("touchEnd")
    assert (1, 1, 1) not in points(page)


def test_looks(opened):
    """Pictures to be looked at; the page follows the system's choice of dark and light."""
    for view in VIEWS:
        for name, size, scheme in (("desktop", DESKTOP, "light"), ("phone", PHONE, "dark")):
            page = opened(f"view={view}&preset=AND", scheme=scheme, size=size)
            for _ in range(5):
                page.keyboard.press("ArrowRight")
            page.screenshot(path=SHOTS / f"play-{view}-{name}-{scheme}.png", full_page=True)
            back = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, re.findall(r"\d+", back))) < 200) == (scheme == "dark")
            choose(page, preset="four")
            assert width_of(page) <= size["width"], (view, name)


OUTSIDE = """() => {
    const plane = document.querySelector('#rule-plane').getBoundingClientRect()
    return [...document.querySelectorAll('#rule-plane .weight.now')].filter((part) => {
        const box = part.getBoundingClientRect()
        return box.left < plane.left || box.right > plane.right || box.top < plane.top || box.bottom > plane.bottom
    }).length
}"""
CONTRASTS = """() => {
    const context = document.createElement('canvas').getContext('2d', {willReadFrequently: true})
    const painted = (...colours) => {
        colours.forEach((colour) => { context.fillStyle = colour; context.fillRect(0, 0, 1, 1) })
        return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3)
    }
    const light = (rgb) => rgb.map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
        .reduce((sum, v, k) => sum + v * [0.2126, 0.7152, 0.0722][k], 0)
    const behind = (element) => {
        if (!element) return ['white']
        if (element.matches('svg.plane')) return [getComputedStyle(element.querySelector('.paper')).fill]
        return [...behind(element.parentElement), getComputedStyle(element).backgroundColor]
    }
    const texts = document.evaluate('//body//text()[normalize-space()]', document, null, 7)
    return Array.from({length: texts.snapshotLength}, (_, k) => texts.snapshotItem(k)).flatMap((text) => {
        const element = text.parentElement
        const seen = element.getClientRects().length && element.checkVisibility({visibilityProperty: true})
        if (!seen || element.closest('script, option, title, :disabled, svg.surface')) return []
        const {fill, color} = getComputedStyle(element)
        const back = behind(element)
        const [one, other] = [painted(...back), painted(...back, element instanceof SVGElement ? fill : color)].map(light)
        return [[(Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05), text.textContent]]
    })
}"""


def test_every_text_stands_out_from_what_is_behind_it(opened):
    page = opened("preset=four")
    for theme, example in (("light", "four"), ("light", "XOR"), ("dark", "four"), ("dark", "XOR")):
        if page.locator("html").get_attribute("data-theme") != theme:
            click(page, "theme")
        page.select_option("#preset", example)
        for view in VIEWS:
            page.click(f"#tab-{view}")
            page.keyboard.press("End")
            found = page.evaluate(CONTRASTS)
            assert len(found) > 30
            assert min(found)[0] >= 4.5, min(found)


def test_a_recorded_run_is_replayed_until_it_is_edited(opened, tmp_path):
    X, y = AND
    trainer = tp.RuleTrainer(tie="sign", max_epochs=3)
    result = trainer.fit(tp.Perceptron(2, dtype=torch.float64), X.double(), y)
    tp.play(log=result, trainer=trainer, out=tmp_path / "page.html")
    page = opened(at=(tmp_path / "page.html").as_uri())
    reads(page, {"[data-test=recorded]": "recorded run"})
    click(page, "end")
    bound = f"{result.mistakes} ≤ (R/γ*)² = 51"
    reads(page, {"[data-test=mistakes]": str(result.mistakes), "[data-test=bound]": bound})
    shows(page, {"[data-test=verdict]": "out of epochs"})
    enter(page, "#maxEpochs", "10001")
    shows(page, {"#notice": "10001 is above the limit of 10000"})
    enter(page, "#maxEpochs", "100")
    shows(page, {"[data-test=recorded]": 0, "[data-test=mistakes]": "11"})
    click(page, "undo", then={"[data-test=recorded]": 1})


HOST = """
async ([esm, state]) => {
  const {default: widget} = await import("data:text/javascript," + encodeURIComponent(esm));
  const listeners = {};
  window.saved = [];
  const model = {
    get: (name) => state[name],
    set: (name, value) => { state[name] = value; (listeners["change:" + name] ?? []).forEach((act) => act()); },
    save_changes: () => window.saved.push(structuredClone({points: state.points, labels: state.labels})),
    on: (name, act) => (listeners[name] ??= []).push(act),
    off: (name, act) => (listeners[name] = listeners[name].filter((other) => other !== act)),
  };
  window.model = model;
  window.show = () => {
    document.body.innerHTML = "";
    const el = document.body.appendChild(document.createElement("div"));
    window.close_view?.();
    window.close_view = widget.render({model, el});
  };
  window.show();
}
"""


def test_a_point_that_is_put_down_in_the_frame_reaches_the_notebook(opened, tmp_path):
    made = tp.play([[0.0, 0.0], [0.5, 0.5], [-0.5, 0.25]], ["</script>", "b", "b"], out=tmp_path / "page.html")
    widget = tp.lab.play.PlayWidget(made.content)
    state = {
        name: getattr(widget, name) for name in ("frame", "content", "height", "points", "labels", "edited", "sandbox")
    }
    (tmp_path / "host.html").write_text("<!DOCTYPE html><title>host</title>")
    page = opened(at=(tmp_path / "host.html").as_uri())
    page.evaluate(HOST, [widget._esm, state])
    plane = page.frame_locator("iframe").locator("#rule-plane")
    plane.click(position={"x": 60, "y": 80})
    page.wait_for_function("window.saved.length > 0")
    saved = page.evaluate("window.saved.at(-1)")
    assert saved["points"][:3] == widget.points
    assert len(saved["points"]) == len(saved["labels"]) == 4
    assert all((value * 64).is_integer() for value in map(float, saved["points"][3]))
    page.evaluate("window.show()")  # as when a notebook scrolls the cell away and back
    count = page.frame_locator("iframe").locator("text=4 points")
    count.wait_for()
    before = page.evaluate("window.saved.length")
    page.evaluate("() => { model.set('points', [[0, 0], [1, 1]]); model.set('labels', [0, 1]); }")
    page.frame_locator("iframe").locator("text=2 points").wait_for()
    assert page.evaluate("window.saved.length") >= before
    assert page.evaluate("window.saved.every(({points, labels}) => points.length === labels.length)")


THREE = "-1,-1,0\n-1,-0.75,0\n1,-1,1\n1,-0.75,1\n0,1,2\n0.25,1,2"


def part(page, name):
    return page.locator(f'[data-test="{name}"]')


def step_of(page, view):
    """Where the view is, and how many steps were made."""
    return tuple(numbers(page, f"#{view}-place"))


def weights_of(page):
    """w₁, w₂ and b as the page writes them."""
    return numbers(page, "[data-test=gradient-weights]")


def test_stochastic_steps_end_where_the_rule_ends_and_a_link_brings_them_back(opened):
    steps = {"gradient_head": "perceptron", "gradient_mode": "stochastic"}
    page = opened("view=gradient", **steps)
    done = {"#gradient-standing": "The gradient is 0", "[data-test=gradient-errors]": "0 / 4"}
    click(page, "gradient-more", then=done)
    assert (weights_of(page), step_of(page, "gradient")) == ([3, 2, -4], (36, 36))
    page.click("#gradient-play")  # at the end it plays once more
    page.wait_for_function("Number(document.querySelector('#gradient-scrub').value) < 36")
    click(page, "gradient-play")
    page.select_option("#gradient-tie", "strict")  # from zero weights nothing moves
    click(page, "gradient-more", then={"#gradient-standing": "zero weights never move"})
    assert step_of(page, "gradient") == (4, 4)
    page = opened("view=gradient", **steps)
    click(page, *["gradient-step"] * 5)
    other = opened(copied(page, "link").split("#")[1])
    assert (step_of(other, "gradient"), weights_of(other)) == ((5, 5), weights_of(page))


def test_steps_are_made_by_keys_and_stop_with_the_view(opened):
    page = opened("view=gradient")
    for key, wanted in (("ArrowRight", (1, 1)), ("Home", (0, 1)), ("End", (50, 50)), ("ArrowLeft", (49, 50))):
        page.keyboard.press(key)
        assert step_of(page, "gradient") == wanted
    page.keyboard.press("Space")
    expect(page.locator("#gradient-play")).to_have_attribute("aria-pressed", "true")
    click(page, "tab-rule", "tab-gradient")  # playing stops with the view
    expect(page.locator("#gradient-play")).to_have_attribute("aria-pressed", "false")


def test_the_surface_follows_the_descent_which_diverges_beyond_the_limit(opened):
    page = opened("view=gradient", gradient_head="lms")
    click(page, "gradient-more")
    drawn = {"image.heat": 1, ".contour": 9, ".optimum": 1}
    shows(page, {f"#gradient-surface {name}": count for name, count in drawn.items()})
    assert page.locator(".descent-path").first.get_attribute("d").count(",") == 51
    assert numbers(page, "[data-test=gradient-loss]") == [pytest.approx(0.125, abs=0.01)]
    page.locator("#gradient-bias").fill("0.5")
    expect(page.locator("#gradient-follow")).not_to_be_checked()
    reads(page, {"[data-test=gradient-best]": "0.125", "[data-test=gradient-biasText]": "0.5"})
    page.locator("#gradient-follow").check()
    assert numbers(page, "[data-test=gradient-biasText]") == [pytest.approx(-1.5, abs=0.1)]
    page = opened("view=gradient")  # a click into the surface starts there
    box = page.locator("#gradient-surface").bounding_box()
    page.locator("#gradient-surface").click(position={"x": 0.75 * box["width"], "y": 0.25 * box["height"]})
    start = [float(page.input_value(f"#gradient-start-0-{k}")) for k in range(3)]
    assert start == pytest.approx([0.5, 0.5, 0], abs=0.02)
    assert weights_of(page) == pytest.approx(start, rel=1e-5)
    assert step_of(page, "gradient") == (0, 0)
    click(page, "gradient-start-far")
    assert weights_of(page) == [-2, 1.5, 0.5]
    page = opened("view=gradient", gradient_head="lms")
    limit = tp.theory.step_limit("lms", tp.data.gate("AND", dtype=torch.float64)[0])
    shows(page, {"#gradient-limit": f"{limit:.4g}"})
    enter(page, "#gradient-lr", 3)
    shows(page, {"#gradient-limit": "above 2/L"})
    click(page, "gradient-more", then={"#gradient-standing": "Diverged"})
    assert step_of(page, "gradient")[0] < 50


def test_more_than_two_classes_and_the_script_of_the_same_steps(opened):
    page = opened("view=gradient")
    click(page, "csv")
    page.fill("#csv-text", THREE)
    click(page, "csv-use", then={"#gradient-many": "class 1 is +1, all others are −1"})
    choose(page, then={"#gradient-many": "class 2 is +1"}, gradient_positive="2")
    click(page, "gradient-more", reading={"[data-test=gradient-errors]": "0 / 6"})
    click(page, "clear", then={"#gradient-standing": "Put down points"})
    expect(page.locator("#gradient-surface")).to_be_hidden()
    click(page, "tab-twolayer", then={"#twolayer-standing": "Put down points"})
    expect(page.locator("#twolayer-hiddenPlane")).to_be_hidden()
    page = opened("view=gradient", gradient_mode="minibatch", gradient_order="shuffled")
    click(page, "gradient-start-far", "gradient-more")
    names = {}
    exec(copied(page, "python"), names)
    net = names["net"]
    assert weights_of(page) == pytest.approx([*net.weight[0].tolist(), net.bias.item()], rel=1e-5)


def test_the_net_begins_with_xor_learns_it_and_has_starts_by_name(opened):
    page = opened("view=twolayer")
    expect(page.locator("#preset")).to_have_value("XOR")
    assert part(page, "twolayer-errors").inner_text() != "0 / 4"
    click(page, "twolayer-more", reading={"[data-test=twolayer-errors]": "0 / 4"})
    expect(part(page, "twolayer-verdict")).to_have_attribute("data-standing", "solved")
    net = tp.lab.xor.train([0], steps=100, dtype=torch.float64).net(0)
    rows = page.locator("#twolayer-weights tbody tr")
    for k in range(2):
        shown = [float(cell.replace("−", "-")) for cell in rows.nth(k).locator("td").all_inner_texts()]
        own = [*net.layers[0].weight[k].tolist(), net.layers[0].bias[k].item(), net.layers[1].weight[0, k].item()]
        assert shown == pytest.approx(own, rel=1e-3)
    shows(page, {"#twolayer-hiddenPlane .point": 4, "#twolayer-plane .line.unit": 2})
    click(page, "undo")
    expect(page.locator("#preset")).to_have_value("AND")
    click(page, "twolayer-xor")
    expect(page.locator("#preset")).to_have_value("XOR")
    page = opened("view=twolayer")
    for start, standing in (("stuck", "plateau"), ("dead", "dead"), ("relu", "solved")):
        page.select_option("#twolayer-start", start)
        for _ in range(5):
            click(page, "twolayer-more")
        expect(part(page, "twolayer-verdict")).to_have_attribute("data-standing", standing)
    made = step_of(page, "twolayer")[1]
    click(page, "twolayer-rewind", "twolayer-step")
    assert step_of(page, "twolayer") == (1, made)


def test_more_units_are_looked_at_two_at_a_time(opened):
    page = opened("view=twolayer", twolayer_hidden="4", twolayer_activation="sigmoid")
    assert page.locator("#twolayer-plane .line.unit").count() <= 4
    choose(page, twolayer_axisX="3")
    assert page.locator("#twolayer-hiddenPlane .axis-name").all_text_contents() == ["h₄", "h₂"]
    choose(page, twolayer_axisY="3")
    assert page.locator("#twolayer-hiddenPlane .axis-name").all_text_contents() == ["h₁", "h₄"]
    before = part(page, "twolayer-loss").inner_text()
    click(page, "twolayer-newSeed")
    assert part(page, "twolayer-loss").inner_text() != before
    choose(page, twolayer_mode="stochastic")
    click(page, "twolayer-step")
    names = {}
    exec(copied(page, "python"), names)
    loss = names["head"].loss(names["net"](names["X"]), names["y"]).item()
    assert numbers(page, "[data-test=twolayer-loss]") == [pytest.approx(loss, rel=1e-4)]
