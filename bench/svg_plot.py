# SPDX-License-Identifier: Apache-2.0
"""Plots as SVG, with nothing but the standard library: lines over two axes, and bars by name."""

import math
from html import escape

# Told apart by people who see few colours (Okabe and Ito), and by their marks.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#000000", "#8c510a")
MARKS = ("circle", "square", "triangle", "diamond")
FONT = 'font-family="Helvetica, Arial, sans-serif"'
INK, FAINT = "#222222", "#dddddd"


class Axis:
    """Values to pixels, linear or logarithmic, with round ticks."""

    def __init__(self, label, values, log=False, ticks=None):
        self.label, self.log = label, log
        low, high = min(values), max(values)
        if log:
            self.low, self.high = low / 1.25, high * 1.25
        else:
            self.low, self.high = min(0.0, low), high * 1.05 or 1.0
        self.ticks = [t for t in ticks or self._round_ticks() if self.low <= t <= self.high]

    def _round_ticks(self):
        if self.log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            return [m * 10.0**d for d in decades for m in (1, 2, 5)]
        rough = (self.high - self.low) / 6
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
        return [i * step for i in range(int(self.high / step) + 1)]

    def share(self, value):
        """Place of a value on the axis, 0 to 1."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def _text(x, y, words, anchor="middle", size=12, weight="normal", turn=0):
    turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" '
            f'fill="{INK}" {FONT}{turned}>{escape(words)}</text>')  # fmt: skip


def _line(x1, y1, x2, y2, colour=INK, width=1.0, dash=""):
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"{dashed}/>'


def _mark(shape, x, y, colour, filled=True):
    look = f'fill="{colour if filled else "#ffffff"}" stroke="{colour}" stroke-width="1.6"'
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" {look}/>'
    if shape == "square":
        return f'<rect x="{x - 3.6:.1f}" y="{y - 3.6:.1f}" width="7.2" height="7.2" {look}/>'
    corners = {"triangle": ((0, -4.8), (4.6, 3.6), (-4.6, 3.6)), "diamond": ((0, -5), (5, 0), (0, 5), (-5, 0))}[shape]
    points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return f'<polygon points="{points}" {look}/>'


def _number(value):
    return f"{value:g}"


class LinePlot:
    """Series of (x, y); a series is joined by a line, or only marked with hollow marks, or a dashed line."""

    width, height = 760, 460
    left, right, top, bottom = 70, 200, 44, 58

    def __init__(self, title, x_label, y_label, x_log=False, y_log=False, x_ticks=None):
        self.title = title
        self.x = (x_label, x_log, x_ticks)
        self.y = (y_label, y_log, None)
        self.series = []  # (name, points, style)

    def add(self, name, points, style="line"):
        """style: line, marks (in the colour of the line of that name) or dashed."""
        if points:
            self.series.append((name, sorted(points), style))

    def draw(self):
        points = [point for _, series, _ in self.series for point in series]
        x_axis = Axis(self.x[0], [p[0] for p in points], self.x[1], self.x[2])
        y_axis = Axis(self.y[0], [p[1] for p in points], self.y[1], self.y[2])
        inner_width = self.width - self.left - self.right
        inner_height = self.height - self.top - self.bottom

        def place(point):
            return (self.left + inner_width * x_axis.share(point[0]),
                    self.height - self.bottom - inner_height * y_axis.share(point[1]))  # fmt: skip

        out = [_text(self.left, 22, self.title, "start", 15, "bold")]
        floor, end = self.height - self.bottom, self.width - self.right
        for tick in x_axis.ticks:
            x, _ = place((tick, y_axis.low))
            out += [_line(x, self.top, x, floor, FAINT), _text(x, floor + 18, _number(tick))]
        for tick in y_axis.ticks:
            _, y = place((x_axis.low, tick))
            out += [_line(self.left, y, end, y, FAINT), _text(self.left - 8, y + 4, _number(tick), "end")]
        out += [_line(self.left, floor, end, floor), _line(self.left, self.top, self.left, floor)]
        out.append(_text((self.left + end) / 2, self.height - 14, x_axis.label, size=13))
        out.append(_text(20, (self.top + floor) / 2, y_axis.label, size=13, turn=-90))
        return out + self._draw_series(place, end)

    def _draw_series(self, place, end):
        out = []
        names = list(dict.fromkeys(name for name, _, _ in self.series))
        for name, points, style in self.series:
            number = names.index(name)
            colour, shape = COLOURS[number % len(COLOURS)], MARKS[number % len(MARKS)]
            places = [place(point) for point in points]
            if style != "marks":
                dash = ' stroke-dasharray="6 4"' if style == "dashed" else ""
                path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
                out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
            if style != "dashed":
                out += [_mark(shape, x, y, colour, style == "line") for x, y in places]
        for row, name in enumerate(names):
            y = self.top + 8 + 20 * row
            colour, shape = COLOURS[row % len(COLOURS)], MARKS[row % len(MARKS)]
            dashed = any(n == name and style == "dashed" for n, _, style in self.series)
            out.append(_line(end + 16, y, end + 40, y, colour, 2, "6 4" if dashed else ""))
            if not dashed:
                out.append(_mark(shape, end + 28, y, colour))
            out.append(_text(end + 48, y + 4, name, "start"))
        return out


class BarPlot:
    """Rows of horizontal bars, one per key; reference values are dashed lines."""

    width = 760
    left, right, top, bottom = 150, 60, 66, 58
    bar = 13

    def __init__(self, title, label, keys):
        self.title, self.label, self.keys = title, label, keys
        self.rows = []  # (name, values by key or None)
        self.references = []  # (name, value)

    def add(self, name, values):
        self.rows.append((name, values))

    def add_reference(self, name, value):
        self.references.append((name, value))

    @property
    def height(self):
        return self.top + self.bottom + len(self.rows) * (self.bar * len(self.keys) + 10)

    def draw(self):
        values = [v for _, row in self.rows for v in row if v is not None] + [v for _, v in self.references]
        axis = Axis(self.label, values)
        inner = self.width - self.left - self.right
        floor = self.height - self.bottom
        out = [_text(20, 22, self.title, "start", 15, "bold")]
        for tick in axis.ticks:
            x = self.left + inner * axis.share(tick)
            out += [_line(x, self.top, x, floor, FAINT), _text(x, floor + 18, _number(tick))]
        y = self.top + 5
        for name, row in self.rows:
            middle = y + self.bar * len(self.keys) / 2
            out.append(_text(self.left - 8, middle + 4, name, "end"))
            for number, value in enumerate(row):
                if value is not None:
                    wide = inner * axis.share(value)
                    out.append(f'<rect x="{self.left}" y="{y:.1f}" width="{wide:.1f}" height="{self.bar - 1}" '
                               f'fill="{COLOURS[number]}"/>')  # fmt: skip
                    out.append(_text(self.left + wide + 4, y + self.bar - 3, f"{value:.2f}", "start", 10))
                y += self.bar
            y += 10
        last, raised = -1000.0, 0
        for name, value in sorted(self.references, key=lambda reference: reference[1]):
            x = self.left + inner * axis.share(value)
            raised = 13 if x - last < 64 and raised == 0 else 0  # names that would meet stand above each other
            out += [_line(x, self.top - 6 - raised, x, floor, INK, 1.2, "4 3"),
                    _text(x, self.top - 10 - raised, name, size=11)]  # fmt: skip
            last = x
        out += [_line(self.left, floor, self.width - self.right, floor), _line(self.left, self.top, self.left, floor)]
        out.append(_text(self.left + inner / 2, self.height - 14, self.label, size=13))
        for number, key in enumerate(self.keys):
            x = self.left + 90 * number
            out.append(f'<rect x="{x}" y="{34}" width="12" height="12" fill="{COLOURS[number]}"/>')
            out.append(_text(x + 18, 44, key, "start"))
        return out


def document(plots, note=""):
    """One SVG with the plots below each other and a line of small print."""
    width = max(plot.width for plot in plots)
    body, y = [], 0
    for plot in plots:
        body += [f'<g transform="translate(0 {y})">', *plot.draw(), "</g>"]
        y += plot.height + 16
    body.append(_text(20, y + 4, note, "start", 11))
    y += 18
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" viewBox="0 0 {width} {y}">'
    return "\n".join([head, f'<rect width="{width}" height="{y}" fill="#ffffff"/>', *body, "</svg>", ""])
