"""Bar charts as SVG: one bar a row, on a logarithmic scale, since what is compared spans three powers of ten."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from html import escape
from math import ceil, floor, log10
from typing import NamedTuple

WIDTH, LABELS, RIGHT = 860, 260, 70
ROW, BAR, HEAD, FOOT = 22, 14, 46, 30
STYLE = """\
text { font: 12px system-ui, sans-serif; fill: #24292f } .title { font-weight: 600; font-size: 13px }
.tick { fill: #6e7781; font-size: 11px } .grid { stroke: #d0d7de } .ours { fill: #0969da } .peer { fill: #afb8c1 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .grid { stroke: #30363d } .peer { fill: #6e7681 } }"""


class Chart(NamedTuple):
    """A title, a figure for each name, and which of the names are ours."""

    title: str
    figures: Mapping[str, float]
    ours: Collection[str]


def drawn(*charts: Chart) -> str:
    """The charts, one below the other."""
    top, parts = 0, []
    for chart in charts:
        parts.append(f'<g transform="translate(0 {top})">{"".join(_chart(chart))}</g>')
        top += _height(chart)
    size = f'width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><style>{STYLE}</style>'
    return "\n".join((head, *parts, "</svg>\n"))


def _height(chart: Chart) -> int:
    return HEAD + ROW * len(chart.figures) + FOOT


def _chart(chart: Chart) -> Iterator[str]:
    first = floor(log10(min(chart.figures.values())))
    last = ceil(log10(max(chart.figures.values())))
    scale = (WIDTH - LABELS - RIGHT) / max(1, last - first)
    bottom = HEAD + ROW * len(chart.figures)
    yield f'<text class="title" x="12" y="22">{escape(chart.title)}</text>'
    for power in range(first, last + 1):
        at = LABELS + (power - first) * scale
        yield f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{HEAD - 8}" y2="{bottom}"/>'
        yield f'<text class="tick" x="{at:.1f}" y="{bottom + 14}" text-anchor="middle">{10.0**power:g}</text>'
    for row, (name, figure) in enumerate(sorted(chart.figures.items(), key=lambda item: item[1])):
        y, length = HEAD + ROW * row, max(1.0, (log10(figure) - first) * scale)
        kind = "ours" if name in chart.ours else "peer"
        yield f'<text x="{LABELS - 8}" y="{y + 11}" text-anchor="end">{escape(name)}</text>'
        yield f'<rect class="{kind}" x="{LABELS}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2"/>'
        yield f'<text x="{LABELS + length + 6:.1f}" y="{y + 11}">{figure:.3g}</text>'
