"""The pages of `report` and `compare` in a real browser: light and dark, wide and narrow, on paper."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures import screenshot
from kcompact.format.batch import Record, build
from tests.support import log_dsl, log_writer, replica_logs
from tests.support.browser import Browser, Page
from tests.support.command_line import COMPACT, kcompact, partition, settings
from tests.support.log_writer import LogSpec, SegmentSpec

pytestmark = pytest.mark.slow

TIME = 1_704_100_000_000
WIDTHS = (320, 360, 700, 1000, 1400)

WIDER_THAN_ITS_PLACE = """
[...document.querySelectorAll('body *')].filter(each => {
  if (each.closest('.table, pre, .patterns, .share') || !each.getClientRects().length) return false;
  const box = each.getBoundingClientRect();
  return box.width && (box.right > document.documentElement.clientWidth + 1 || box.left < -1);
}).map(each => `${each.tagName} ${each.className.baseVal ?? each.className} ${each.textContent.slice(0, 60)}`)
"""

FAINT = """
(() => {
  const parts = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = colour => {
    const linear = part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = parts(colour).map(each => linear(each / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = element => {
    for (let each = element; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (parts(colour)[3] !== 0) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let seen = 0;
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    const shown = texts.currentNode.textContent.trim();
    if (!shown || !element.getClientRects().length) continue;
    seen += 1;
    const style = getComputedStyle(element);
    const colour = element.namespaceURI.endsWith('svg') ? style.fill : style.color;
    const [a, b] = [light(colour), light(behind(element))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) found.push(`${shown.slice(0, 40)}: ${colour} on ${behind(element)}, ${contrast.toFixed(2)}`);
    if (parseFloat(style.fontSize) < 12) found.push(`${shown.slice(0, 40)}: ${style.fontSize}`);
  }
  return seen > 50 ? found : [`only ${seen} texts`];
})()
"""
"""Texts with less contrast than WCAG AA wants, or smaller than 12 px."""

OVERLAPPING = """
[...document.querySelectorAll('figure svg:not(.swatch)')].filter(each => each.getClientRects().length).flatMap(svg => {
  const boxes = [...svg.querySelectorAll('text')].map(each => [each.textContent, each.getBoundingClientRect()]);
  return boxes.flatMap(([name, a], number) => boxes.slice(number + 1)
    .filter(([, b]) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3)
    .map(([other]) => `${name} over ${other}`));
})
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as running:
        yield running


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A log with a history, a directory with all kinds of partitions, a log with hostile names and keys, replicas."""
    scratch = tmp_path_factory.mktemp("pages")
    several, hostile = scratch / "several", scratch / "<script>document.title='x'</script>" / ("n" * 150)
    for number in range(3):
        partition(several, settings(f"name=orders-{number}"))
    log_writer.write(log_dsl.parse("log now=10:00 name=empty-0\n0:"), several)
    image = b"<img src=x onerror=\"document.title='x'\">:2"
    keys = (b"<script>document.title='x'</script>:1", image, b"k" * 5000, b"\xff")
    records = [Record(number, TIME, key, b"value") for number, key in enumerate(keys)]
    segments = (SegmentSpec(base_offset=0, batches=(build(records),)), SegmentSpec(base_offset=len(keys)))
    log_writer.write(LogSpec(name="long." * 40 + "topic-0", segments=segments), hostile)
    found = {"history": screenshot.write_report(scratch)}
    for name, source in (("several", several), ("hostile", hostile)):
        found[name] = scratch / f"{name}.html"
        ran = kcompact("report", "--print-data", *COMPACT, source, "-o", found[name])
        assert ran.code == 0, ran.err
    found["replicas"] = scratch / "replicas.html"
    brokers = replica_logs.write(hostile, name="<img src=x>")
    ran = kcompact("compare", "--print-data", "--before-start", "--report", found["replicas"], brokers[1], brokers[0])
    assert ran.code == 3, ran.err
    return found


@pytest.mark.parametrize("name", ["history", "several", "hostile", "replicas"])
@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_on_a_screen(name: str, is_dark: bool, width: int, browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages[name], width=width, is_dark=is_dark)
    check(page, pages[name])
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(WIDER_THAN_ITS_PLACE) == []
    assert page.evaluate(FAINT) == []
    assert page.evaluate(OVERLAPPING) == []
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", paper))) < 200) == is_dark


@pytest.mark.parametrize("name", ["history", "several", "hostile", "replicas"])
def test_on_paper(name: str, browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages[name], width=720, is_dark=True, media="print")
    check(page, pages[name])
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("document.documentElement.scrollWidth") <= 720
    assert (
        page.evaluate("[...document.querySelectorAll('.table')].filter(e => e.scrollWidth > e.clientWidth + 1).length")
        == 0
    )
    assert page.evaluate(FAINT) == []
    assert page.pdf().startswith(b"%PDF-")


def check(page: Page, file: Path) -> None:
    """Nothing is asked for but the page itself, nothing complains, and no text of a log has become a script."""
    assert page.requests() == [file.as_uri()]
    assert page.complaints() == []
    assert page.evaluate("document.title.endsWith('kcompact report')")
    assert page.evaluate("document.querySelectorAll('script').length") == 0


def test_a_script_would_not_run(browser: Browser, pages: dict[str, Path], tmp_path: Path) -> None:
    """The policy of the page forbids it, even if a text got into the page as it is."""
    planted = tmp_path / "planted.html"
    html = pages["history"].read_text(encoding="utf-8")
    script = "<script>document.title='x'</script><img src=x onerror=\"document.title='x'\">"
    planted.write_text(html.replace("<main>", f"<main>{script}"), encoding="utf-8")
    page = browser.open(planted, width=1000)
    assert page.evaluate("document.title") != "x"
    assert any("Content Security Policy" in complaint for complaint in page.complaints())


def test_every_figure_has_a_name_and_shows_something(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.open(pages["history"], width=1400)
    names = page.evaluate("[...document.querySelectorAll('figure .wide svg title')].map(each => each.textContent)")
    assert "The log to scale" in names
    assert "Dirty ratio as the log grew" in names
    shown = "[...document.querySelectorAll('figure svg:not(.swatch)')].filter(each => each.getClientRects().length)"
    assert min(page.evaluate(f"{shown}.map(each => each.querySelectorAll('path').length)")) > 3
