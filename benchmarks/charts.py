"""The charts of the report, as pieces of HTML that plotly draws."""

from math import ceil, floor, log10
from statistics import geometric_mean

from .history import CONTROL

COLOURS = (
    *("#1f5fa8", "#c2410c", "#15803d", "#7e22ce", "#0f766e"),
    *("#be123c", "#a16207", "#4338ca", "#0369a1", "#525252"),
)
GREY = "rgba(100, 116, 139, 0.45)"
HEIGHT = 340


def library():
    """plotly.js itself."""
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def ratios(name, unit, title, found, said):
    """Every case over the commits, thin; the geometric mean of each machine, with its noise."""
    figure = _figure(title, unit, log_axis=True)
    ticks = _ticks(found)
    for k, curve in enumerate(_curves(found)):
        own = [run for run in found if run.curve == curve and name in run.values]
        if not own:
            continue
        for case in dict.fromkeys(c for run in own for c in run.values[name]):
            points = [(run, run.values[name][case]) for run in own if case in run.values[name]]
            label = _label(case, curve, found)
            width = int(own[0].known)
            _line(figure, points, ticks, said, label, color=GREY, width=width, marker=3)
        if not own[0].known:  # a mean of several machines would move with them
            continue
        # Of the cases that all of them have: one that is added moves no mean.
        common = [c for c in own[-1].values[name] if all(c in run.values[name] for run in own)]
        means = [
            (run, geometric_mean(run.values[name][case] for case in common))
            for run in own
            if common
        ]
        if means:
            _band(figure, means, ticks, COLOURS[k % len(COLOURS)])
        label = f"geometric mean ({curve})"
        _line(figure, means, ticks, said, label, COLOURS[k % len(COLOURS)], width=3, marker=7)
    if not figure.data:
        return ""
    _name_worst(figure, name, found, ticks)
    figure.add_hline(y=1, line={"dash": "dot", "color": "#94a3b8", "width": 1})
    return _html(figure, ticks, name)


def _name_worst(figure, name, found, ticks):
    """The slowest case of the newest run, beside its point."""
    newest = next(run for run in reversed(found) if name in run.values)
    values = newest.values[name]
    if len(values) > 1:
        worst = max(values, key=values.get)
        figure.add_annotation(
            x=ticks[newest.commit],
            y=log10(values[worst]),  # plotly's annotations count in powers on such an axis
            text=worst.split("/", 1)[-1] if worst.count("/") > 1 else worst,
            showarrow=False,
            xanchor="right",
            yanchor="bottom",
            font={"size": 10, "color": "#64748b"},
        )


def values(name, unit, title, found, said):
    """Seconds, bytes and counts: every case over the commits."""
    cases = list(dict.fromkeys(c for run in found for c in run.values.get(name, ())))
    if not cases:
        return ""
    figure = _figure(title, unit, log_axis=False)
    ticks = _ticks(found)
    for curve in _curves(found):
        for k, case in enumerate(cases):
            points = [
                (run, run.values[name][case])
                for run in found
                if run.curve == curve and case in run.values.get(name, ())
            ]
            label = _label(case or name, curve, found)
            width = 2 * all(run.known for run, _ in points)
            _line(figure, points, ticks, said, label, COLOURS[k % len(COLOURS)], width, 5)
    letter = {"seconds": "s", "bytes": "B"}.get(unit)
    figure.update_yaxes(rangemode="tozero", tickformat="~s" if letter else "d")
    if letter:
        figure.update_yaxes(ticksuffix=letter)
    elif max(max(run.values.get(name, {"": 0}).values()) for run in found) <= 10:
        figure.update_yaxes(dtick=1)
    figure.update_layout(showlegend=len(cases) > 1)
    return _html(figure, ticks, name)


def noise(found, said):
    """The A/A control: a call over itself."""
    figure = _figure("A/A control: the same call as its own baseline", "time / its own", False)
    ticks = _ticks(found)
    calls = list(dict.fromkeys(c for run in found for c in run.values.get(CONTROL, ())))
    for curve in _curves(found):
        for k, call in enumerate(calls):
            points = [
                (run, run.values[CONTROL][call])
                for run in found
                if run.curve == curve and call in run.values.get(CONTROL, ())
            ]
            label = _label(call, curve, found)
            _line(figure, points, ticks, said, label, COLOURS[k % len(COLOURS)], 0, 8)
    figure.add_hline(y=1, line={"color": "#94a3b8", "width": 1})
    figure.update_layout(showlegend=True)
    return _html(figure, ticks, CONTROL)


def slowest(latest, names, count):
    """The worst cases over memcpy at the latest commit."""
    import plotly.graph_objects as go

    pairs = sorted(
        (value, f"{case}  ({name.split('.')[1]})")
        for name in names
        if name.endswith("over_memcpy")
        for case, value in latest.values.get(name, {}).items()
    )[-count:]
    figure = _figure(f"The slowest cases at {latest.commit[:8]}", "", False)
    bar = go.Bar(
        x=[value for value, _ in pairs],
        y=[label for _, label in pairs],
        orientation="h",
        marker_color=COLOURS[0],
        text=[f"{value:.2f}" for value, _ in pairs],
        hovertemplate="%{y}: %{x:.3g}<extra></extra>",
    )
    figure.add_trace(bar)
    figure.update_layout(height=90 + 26 * len(pairs), xaxis_title="time / memcpy's", yaxis_title="")
    if pairs:
        steps = _steps(min(1.0, pairs[0][0]), pairs[-1][0])
        figure.update_xaxes(type="log", tickvals=steps, ticktext=[f"{step:g}" for step in steps])
        figure.update_xaxes(range=[log10(min(0.9, pairs[0][0])), log10(1.2 * pairs[-1][0])])
    figure.update_yaxes(automargin=True, type="category")
    figure.add_vline(x=1, line={"dash": "dot", "color": "#94a3b8"})
    return _div(figure, "slowest")


def _curves(found):
    return list(dict.fromkeys(run.curve for run in found))


def _label(case, curve, found):
    """What a line is called: with its machine, if there are others."""
    return case if len(_curves(found)) == 1 else f"{case} ({curve})"


def _ticks(found):
    """The place of each commit on the axis."""
    return {commit: k for k, commit in enumerate(dict.fromkeys(run.commit for run in found))}


def _line(figure, points, ticks, said, label, color, width, marker):
    import plotly.graph_objects as go

    if not points:
        return
    trace = go.Scatter(
        x=[ticks[run.commit] for run, _ in points],
        y=[value for _, value in points],
        name=label,
        mode="lines+markers" if width else "markers",
        line={"color": color, "width": width},
        marker={"color": color, "size": marker},
        customdata=[f"{run.commit[:8]} {said.get(run.commit, '')}" for run, _ in points],
        hovertemplate=f"<b>%{{y:.4g}}</b> {label}<br>%{{customdata}}<extra></extra>",
    )
    figure.add_trace(trace)


def _band(figure, means, ticks, color):
    """The noise floor around a curve: within it, nothing is said to have changed."""
    import plotly.graph_objects as go

    x = [ticks[run.commit] for run, _ in means]
    upper = [value * run.noise for run, value in means]
    lower = [value / run.noise for run, value in means]
    figure.add_trace(
        go.Scatter(
            x=x + x[::-1],
            y=upper + lower[::-1],
            fill="toself",
            fillcolor=color,
            opacity=0.15,
            line={"width": 0},
            hoverinfo="skip",
            mode="lines",
        )
    )


def _figure(title, unit, log_axis):
    import plotly.graph_objects as go

    figure = go.Figure()
    figure.update_layout(
        template="plotly_white",
        title={"text": f"<b>{title}</b>", "font": {"size": 15}, "x": 0.01, "xanchor": "left"},
        height=HEIGHT,
        margin={"l": 64, "r": 16, "t": 44, "b": 72},
        showlegend=False,
        hovermode="closest",
        font={"family": "system-ui, sans-serif", "size": 12, "color": "#334155"},
        legend={"orientation": "h", "y": -0.32, "font": {"size": 10}},
        yaxis={"title": unit, "type": "log" if log_axis else "linear"},
    )
    return figure


def _html(figure, ticks, name):
    """With the commits below, and readable steps on a logarithmic axis."""
    step = max(1, len(ticks) // 12)
    shown = [(k, commit[:7]) for commit, k in ticks.items() if k % step == 0]
    figure.update_xaxes(
        tickvals=[k for k, _ in shown],
        ticktext=[text for _, text in shown],
        tickangle=-45,
        range=[-0.5, len(ticks) - 0.5],
        zeroline=False,
    )
    if figure.layout.yaxis.type == "log":
        seen = [y for trace in figure.data for y in trace.y if y > 0]
        steps = _steps(min(seen), max(seen))
        figure.update_yaxes(tickvals=steps, ticktext=[f"{step:g}" for step in steps])
    return _div(figure, name)


def _steps(low, high):
    """Round numbers from below `low` to above `high`: 1, 2, 5, and 10; the tens if many."""
    tens = range(floor(log10(low)), ceil(log10(high)) + 1)
    digits = (1, 2, 5) if high / low < 1000 else (1,)
    return [digit * 10.0**ten for ten in tens for digit in digits]


def _div(figure, name):
    config = {"displayModeBar": False, "responsive": True}
    return figure.to_html(
        config=config,
        include_plotlyjs=False,
        full_html=False,
        div_id=f"chart-{name.replace('.', '-')}",
        default_height=f"{figure.layout.height}px",
    )
