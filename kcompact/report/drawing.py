"""Figures as SVG that stands in a page: drawn by matplotlib, with the page's own fonts and colours.

A figure is drawn twice, for wide and for narrow screens, and the page shows one of them. Text stays text. matplotlib
gets a colour of `PALETTE` in place of each colour; in the SVG it becomes a variable of the style sheet, so the same
figure is right on a light page, on a dark one, and on paper. The same figure gives the same bytes.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import matplotlib
from markupsafe import Markup
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FuncFormatter, MaxNLocator

from kcompact import readable
from kcompact.plan.clean_plan import Role
from kcompact.values import dataclass

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

INK, MUTED, RULE, PAPER = "#a1b201", "#a1b202", "#a1b203", "#a1b204"
CLEAN, DIRTY, UNCLEANABLE, ACTIVE, ACCENT = "#a1b205", "#a1b206", "#a1b207", "#a1b208", "#a1b209"
PALETTE = {
    INK: "ink",
    MUTED: "muted",
    RULE: "rule",
    PAPER: "paper",
    CLEAN: "clean",
    DIRTY: "dirty",
    UNCLEANABLE: "uncleanable",
    ACTIVE: "active",
    ACCENT: "accent",
}
"""Stand-ins for colours, and the names of the variables that replace them."""

ROLE_COLOURS = {Role.CLEAN: CLEAN, Role.DIRTY: DIRTY, Role.UNCLEANABLE: UNCLEANABLE, Role.ACTIVE: ACTIVE}
PATTERNS = frozenset({CLEAN, DIRTY, UNCLEANABLE, ACTIVE})
"""Areas of these colours are filled with a pattern of the page, so no one needs to see colours."""

WIDE_PX, NARROW_PX = 680, 340
TEXT_PX = 12

_DAY_MS = 86_400_000
_FIRST_MS = 1
_LAST_MS = 4_102_444_800_000
"""The first millisecond of the year 2100. A later timestamp is an error of its producer."""

_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "kcompact",
    "font.size": TEXT_PX,
    "axes.edgecolor": RULE,
    "axes.labelcolor": MUTED,
    "axes.labelsize": TEXT_PX,
    "axes.linewidth": 1.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": RULE,
    "grid.linewidth": 1.0,
    "text.color": INK,
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": TEXT_PX,
    "ytick.labelsize": TEXT_PX,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "xtick.major.pad": 10,
    "ytick.major.pad": 7,
    "patch.linewidth": 0.0,
    "path.simplify": True,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure of the page: its title, what it shows in a sentence, and the SVG for wide and for narrow screens.

    `legend`: what the colours mean, which are named for the parts of a log.
    """

    title: str
    description: str
    wide: Markup
    narrow: Markup
    legend: tuple[tuple[Role, str], ...] = ()


def figure(
    name: str,
    title: str,
    description: str,
    draw: Callable[[Axes, bool], None],
    *,
    height_px: int = 240,
    left_px: int = 64,
    bottom_px: int = 38,
    top_px: int = 14,
    legend: tuple[tuple[Role, str], ...] = (),
) -> Figure:
    """Return a figure. `draw` draws on axes; its second argument says whether the screen is narrow.

    `name` distinguishes the figure from all others of the page.
    """
    drawn = []
    for is_narrow in (False, True):
        width_px = NARROW_PX if is_narrow else WIDE_PX
        with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
            # A letter that matplotlib's own font lacks; the browser has other fonts.
            warnings.simplefilter("ignore", UserWarning)
            drawing = Drawing(figsize=(width_px / 72, height_px / 72), dpi=72, facecolor="none")
            FigureCanvasSVG(drawing)
            right_px = 14
            axes = drawing.add_axes(
                (
                    left_px / width_px,
                    bottom_px / height_px,
                    (width_px - left_px - right_px) / width_px,
                    (height_px - bottom_px - top_px) / height_px,
                ),
                facecolor="none",
            )
            draw(axes, is_narrow)
            buffer = io.StringIO()
            drawing.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
        drawn.append(_for_page(buffer.getvalue(), f"{name}-{'narrow' if is_narrow else 'wide'}", title, description))
    return Figure(title=title, description=description, wide=drawn[0], narrow=drawn[1], legend=legend)


# Axes


def size_axis(axis: Axis, *, ticks: int = 5) -> None:
    """Label an axis with sizes in units of 1024."""
    axis.set_major_locator(_SizeLocator(nbins=ticks, min_n_ticks=2))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _short_size(value, axis.get_view_interval()[1])))


def percent_axis(axis: Axis) -> None:
    """Label an axis with percent."""
    axis.set_major_locator(MaxNLocator(nbins=5, min_n_ticks=2))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))


def are_dates(timestamps_ms: Sequence[int]) -> bool:
    """Return whether all timestamps are dates that an axis can show, and not all the same."""
    return all(_FIRST_MS <= each < _LAST_MS for each in timestamps_ms) and len(set(timestamps_ms)) > 1


def day(timestamp_ms: float) -> float:
    """Return a timestamp as the number that matplotlib has for it."""
    return timestamp_ms / _DAY_MS


def date_axis(axes: Axes, *, is_narrow: bool) -> None:
    """Label the x axis with dates and times in UTC."""
    locator = AutoDateLocator(maxticks=4 if is_narrow else 8)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def label(axes: Axes, x: float, y: float, text: str, **style: object) -> None:
    """Write text at a place. A dollar sign is a dollar sign, not the start of a formula."""
    axes.text(x, y, readable.shown(text), parse_math=False, **style)  # type: ignore[arg-type]


class _SizeLocator(MaxNLocator):
    """Ticks at round numbers of the unit in which the greatest size is printed."""

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        unit = 1024.0 ** _power(vmax)
        return [tick * unit for tick in super().tick_values(vmin / unit, vmax / unit)]


def _power(size_bytes: float) -> int:
    """Return which unit a size is printed in, as a power of 1024."""
    return max(0, int(math.log(size_bytes, 1024) + 1e-9)) if size_bytes >= 1 else 0


def _short_size(size_bytes: float, greatest: float) -> str:
    power = _power(greatest)
    return f"{size_bytes / 1024**power:g} {readable.UNITS[power]}" if size_bytes else "0"


# From matplotlib's SVG to the page's


def _for_page(svg: str, name: str, title: str, description: str) -> Markup:
    """Return an SVG for the page: ids of its own, the colours of the page, a title and a description."""
    root = ElementTree.fromstring(svg)
    used = set(re.findall(r"url\(#([^)]+)\)", svg)) | set(re.findall(r'xlink:href="#([^"]+)"', svg))
    _without_useless(root)
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        element.text = element.text if element.tag == "text" else None
        element.tail = None
        _adapt(element, name, used)
    root.attrib = {
        "viewBox": root.attrib["viewBox"],
        "role": "img",
        "aria-labelledby": f"{name}-title {name}-desc",
    }
    for number, (tag, text) in enumerate((("title", title), ("desc", description))):
        described = ElementTree.Element(tag, {"id": f"{name}-{tag}"})
        described.text = readable.shown(text)
        root.insert(number, described)
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _without_useless(element: ElementTree.Element) -> None:
    """Remove what a page needs none of: metadata, the style sheet, empty groups."""
    for child in list(element):
        _without_useless(child)
        name = child.tag.removeprefix(_SVG)
        if name in ("metadata", "style") or (name in ("g", "defs") and not len(child)):
            element.remove(child)


def _adapt(element: ElementTree.Element, name: str, used: set[str]) -> None:
    """Give an element ids of its own and the page's colours. The fonts are those of the page."""
    own_id = element.attrib.pop("id", None)
    if own_id in used:
        element.set("id", f"{name}-{own_id}")
    target = element.attrib.pop(_HREF, None)
    if target is not None:
        element.set("href", f"#{name}-{target.removeprefix('#')}")
    fill = element.attrib.pop("fill", None)
    if fill is not None:
        element.set("style", f"fill: {fill}")
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]
    for attribute, value in element.attrib.items():
        value = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", value)
        value = re.sub(r"fill: (#[0-9a-f]{6})\b", _pattern, value)
        value = re.sub(r"#[0-9a-f]{6}\b", lambda colour: f"var(--{PALETTE[colour[0]]})", value)
        element.set(attribute, re.sub(r"font-family: [^;]*; ", "", value))


def _pattern(fill: re.Match[str]) -> str:
    """Return the filling of an area: the pattern of the page for its colour, if there is one."""
    return f"fill: url(#fill-{PALETTE[fill[1]]})" if fill[1] in PATTERNS else fill[0]
