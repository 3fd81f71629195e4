"""The bar chart of the README, light and dark, as SVG without a library."""

from html import escape

WIDTH, LEFT, RIGHT, TOP, ROW, BAR = 760, 210, 70, 58, 46, 15
# Ink, faint ink, and the bars of both series; the background is the page's.
THEMES = {
    "light": ("#1f2328", "#59636e", "#1f6feb", "#afb8c1"),
    "dark": ("#e6edf3", "#9198a1", "#58a6ff", "#6e7681"),
}


TITLE, LINE = "Speed as a share of memcpy's, and how many times NumPy's", "memcpy"
SERIES = ("shapejit", "NumPy")
MOST = 1.3  # where bars end, or beyond it; a dotted line stands at 1


def svg(rows, note, theme):
    """The chart as text: a row has a name, two bars, and what stands beside the first one."""
    ink, faint, *colours = THEMES[theme]
    height = TOP + ROW * len(rows) + 26
    ends = (max(first, second) for _, first, second, _ in rows)
    scale = (WIDTH - LEFT - RIGHT) / max(MOST, *ends)
    one, bottom = f"{LEFT + scale:.1f}", TOP + ROW * len(rows) - 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" font-family="system-ui, sans-serif" font-size="13">',
        f"<title>{escape(TITLE)}</title>",
        _label(12, 22, TITLE, ink, size=15),
        _label(12, height - 6, note, faint, size=11),
    ]
    for x, name, colour in zip((LEFT, LEFT + 130), SERIES, colours, strict=True):
        parts.append(f'<rect x="{x}" y="34" width="10" height="10" rx="2" fill="{colour}"/>')
        parts.append(_label(x + 15, 43, name, ink, size=12))
    parts.append(
        f'<line x1="{one}" y1="{TOP - 8}" x2="{one}" y2="{bottom}" '
        f'stroke="{faint}" stroke-dasharray="3 3"/>'
    )
    parts.append(_label(LEFT + scale, bottom + 14, LINE, faint, anchor="middle", size=11))
    for k, (name, first, second, beside) in enumerate(rows):
        y = TOP + ROW * k
        parts += [
            _label(LEFT - 10, y + BAR + 5, name, ink, anchor="end"),
            _bar(y, first * scale, colours[0]),
            _bar(y + BAR + 2, second * scale, colours[1]),
            _label(LEFT + first * scale + 6, y + 12, beside, ink, weight=600),
        ]
    return "\n".join([*parts, "</svg>", ""])


def _bar(y, width, colour):
    return (
        f'<rect x="{LEFT}" y="{y}" width="{max(width, 1.5):.1f}" height="{BAR}" rx="2" '
        f'fill="{colour}"/>'
    )


def _label(x, y, text, colour, *, anchor="start", size=13, weight=400):
    return (
        f'<text x="{x:.1f}" y="{y}" fill="{colour}" text-anchor="{anchor}" '
        f'font-size="{size}" font-weight="{weight}">{escape(text)}</text>'
    )
