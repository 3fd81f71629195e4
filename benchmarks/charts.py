"""The charts of the report, as pieces of HTML that plotly draws."""

from math import log10

from .history import CONTROL, geometric_mean

COLOURS = ("#1f5fa8", "#c2410c", "#15803d", "#7e22ce", "#0f766e", "#be123c")
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
            _line(figure, points, ticks, said, case, color=GREY, width=1, marker=3)
        means = [(run, geometric_mean(run.values[name].values())) for run in own]
        _band(figure, means, ticks, COLOURS[k % len(COLOURS)])
        label = f"geometric mean ({curve})"
        _line(figure, means, ticks, said, label, COLOURS[k % len(COLOURS)], width=3, marker=7)
    if not figure.data:
        return ""
    figure.add_hline(y=1, line={"dash": "dot", "color": "#94a3b8", "width": 1})
    return _html(figure, ticks, name)


def values(name, unit, title, found, said):
    """Seconds, bytes and counts: every case over the commits."""
    shown = {run: run.values[name] for run in found if name in run.values} if found else {}
    return _plain(name, unit, title, found, said) if shown else ""


def _plain(name, unit, title, found, said):
    figure = _figure(title, unit, log_axis=unit == "seconds")
    ticks = _ticks(found)
    cases = list(dict.fromkeys(c for run in found for c in run.values.get(name, ())))
    for curve in _curves(found):
        for k, case in enumerate(cases):
            points = [
                (run, run.values[name][case])
                for run in found
                if run.curve == curve and case in run.values.get(name, ())
            ]
            _line(figure, points, ticks, said, case or name, COLOURS[k % len(COLOURS)], 2, 5)
    if unit != "seconds":
        figure.update_yaxes(rangemode="tozero")
    figure.update_layout(showlegend=len(cases) > 1)
    return _html(figure, ticks, name)


def noise(found, said):
    """The A/A control: a call over itself."""
    figure = _figure("A/A control: the same call as its own baseline", "time / its own", True)
    ticks = _ticks(found)
    calls = list(dict.fromkeys(c for run in found for c in run.values.get(CONTROL, ())))
    for k, call in enumerate(calls):
        points = [
            (run, run.values[CONTROL][call]) for run in found if call in run.values.get(CONTROL, ())
        ]
        _line(figure, points, ticks, said, call, COLOURS[k % len(COLOURS)], 0, 8)
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
    figure.update_yaxes(automargin=True, type="category")
    figure.add_vline(x=1, line={"dash": "dot", "color": "#94a3b8"})
    return _div(figure, "slowest")


def _curves(found):
    return list(dict.fromkeys(run.curve for run in found))


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
        # A decade or less: 1, 2, 5; more: the decades.
        wide = log10(max(seen) / min(seen)) > 2
        figure.update_yaxes(dtick=1 if wide else "D2", exponentformat="power" if wide else "none")
        if unit_of(figure) == "seconds":
            figure.update_yaxes(exponentformat="SI", ticksuffix="s")
    return _div(figure, name)


def unit_of(figure):
    """What the vertical axis says."""
    return figure.layout.yaxis.title.text


def _div(figure, name):
    config = {"displaylogo": False, "responsive": True, "modeBarButtonsToRemove": ["lasso2d"]}
    return figure.to_html(
        config=config,
        include_plotlyjs=False,
        full_html=False,
        div_id=name.replace(".", "-"),
        default_height=f"{figure.layout.height}px",
    )
