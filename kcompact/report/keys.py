"""The figure of the keys: how many versions they have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kcompact import readable
from kcompact.plan.clean_plan import Role
from kcompact.report import drawing
from kcompact.report.facts import PartitionFacts
from kcompact.report.parts import Illustrated
from kcompact.views.keys import VERSIONS, keys_section
from kcompact.views.parts import Section, lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from kcompact.keys.counts import VersionsBin


def illustrated_keys(facts: PartitionFacts, name: str, *, print_data: bool) -> Section | Illustrated | None:
    """Return the section about the keys; None if none was counted."""
    keys = facts.keys
    if keys is None or not keys.counts.records.number:
        return None
    section = keys_section(keys, print_data=print_data)
    if not print_data:
        remark = lines("Keys and prefixes are shown as the beginning of their SHA-256.", is_close=True)
        section = Section(title=section.title, parts=(*section.parts, remark))
    versions = [each for each in keys.versions if each.keys]
    if not versions:
        return section
    figure = drawing.figure(
        f"{name}-versions",
        VERSIONS,
        "; ".join(
            f"{readable.span(each.least, each.most)}: {each.keys:,} keys, {each.records:,} records" for each in versions
        ),
        lambda axes, is_narrow: _draw_versions(axes, versions, is_narrow=is_narrow),
        bottom_px=56,
        legend=((Role.CLEAN, "keys"), (Role.DIRTY, "records")),
    )
    return Illustrated(section=section, figure=figure, beside=VERSIONS)


def _draw_versions(axes: Axes, versions: Sequence[VersionsBin], *, is_narrow: bool) -> None:
    keys, records = sum(each.keys for each in versions), sum(each.records for each in versions)
    places = range(len(versions))
    width = 0.38
    for offset, parts, colour in (
        (-width / 2, [100 * each.keys / keys for each in versions], drawing.CLEAN),
        (width / 2, [100 * each.records / records for each in versions], drawing.DIRTY),
    ):
        axes.bar([place + offset for place in places], parts, width=width, color=colour, edgecolor=drawing.PAPER)
    every = -(-len(versions) // (5 if is_narrow else 12))
    names = [f"{each.least:,}{'' if each.least == each.most else '+'}" for each in versions]
    axes.set_xticks(list(places)[::every], names[::every], parse_math=False)
    axes.set_xlabel("versions of a key", parse_math=False)
    axes.set_xlim(-0.6, len(versions) - 0.4)
    drawing.percent_axis(axes.yaxis)
