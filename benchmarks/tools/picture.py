"""The bar chart at the top of the README, light and dark, as SVG without a library."""

from html import escape

from .lines import LINES, numpys, seconds

WIDTH, LEFT, RIGHT, TOP, ROW, BAR = 760, 210, 70, 58, 46, 15
# Ink, faint ink, and the bars of shapejit and NumPy; the background is the page's.
THEMES = {
    "light": ("#1f2328", "#59636e", "#1f6feb", "#afb8c1"),
    "dark": ("#e6edf3", "#9198a1", "#58a6ff", "#6e7681"),
}


def bars(figures):
    """(name, speed of shapejit, speed of NumPy) of each bar; 1 is the speed of memcpy."""
    found = []
    for line in LINES:
        taken = seconds(figures, line) if line.bar else None
        if taken and "memcpy" in taken:
            ours, theirs = (taken["memcpy"] / s for s in (taken["shapejit"], numpys(taken)))
            found.append((line.bar, ours, theirs))
    return found


def svg(figures, theme):
    """The chart as text: two bars per row, which end at 1.3 times memcpy's speed."""
    ink, faint, own, other = THEMES[theme]
    found = bars(figures)
    height = TOP + ROW * len(found) + 26
    scale = (WIDTH - LEFT - RIGHT) / max(1.3, *(max(pair) for _, *pair in found))
    cpu = figures["machine"]["cpu"]
    bottom = TOP + ROW * len(found) - 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" font-family="system-ui, sans-serif" font-size="13">',
        "<title>Speed of shapejit and NumPy; 1 is the speed of memcpy</title>",
        label(12, 22, "Speed as a share of memcpy's, and how many times NumPy's", ink, size=15),
        *_key(own, other, ink),
        f'<line x1="{LEFT + scale:.1f}" y1="{TOP - 8}" x2="{LEFT + scale:.1f}" y2="{bottom}" '
        f'stroke="{faint}" stroke-dasharray="3 3"/>',
        label(LEFT + scale, bottom + 14, "memcpy", faint, anchor="middle", size=11),
        label(12, height - 6, cpu, faint, size=11),
    ]
    for k, (name, ours, theirs) in enumerate(found):
        y = TOP + ROW * k
        parts += [
            label(LEFT - 10, y + BAR + 5, name, ink, anchor="end"),
            _bar(y, ours * scale, own),
            _bar(y + BAR + 2, theirs * scale, other),
            label(LEFT + ours * scale + 6, y + 12, f"{ours / theirs:.0f}x", ink, weight=600),
        ]
    return "\n".join([*parts, "</svg>", ""])


def _key(own, other, ink):
    parts = []
    for x, name, colour in ((LEFT, "shapejit", own), (LEFT + 90, "NumPy", other)):
        parts.append(f'<rect x="{x}" y="34" width="10" height="10" rx="2" fill="{colour}"/>')
        parts.append(label(x + 15, 43, name, ink, size=12))
    return parts


def _bar(y, width, colour):
    return (
        f'<rect x="{LEFT}" y="{y}" width="{max(width, 1.5):.1f}" height="{BAR}" rx="2" '
        f'fill="{colour}"/>'
    )


def label(x, y, text, colour, *, anchor="start", size=13, weight=400):
    return (
        f'<text x="{x:.1f}" y="{y}" fill="{colour}" text-anchor="{anchor}" '
        f'font-size="{size}" font-weight="{weight}">{escape(text)}</text>'
    )
