// A plot over time that can be read by pointer, by keyboard and as a table.

import { h, s, table, unique } from "./shared/dom.js";
import { clock, day, utcDay } from "./format.js";
import { times, upright } from "./scale.js";

const HEIGHT = 190;
// Of a character of a label, in pixels at its font size.
const WIDEST = 7;
const EDGE = { left: 52, right: 10, top: 10, bottom: 24 };

export const whenOf = (point, by) => {
  if (by === "day") return utcDay(point.at_s);
  return by === "minute"
    ? clock(point.at_s, false)
    : `${day(point.at_s)}, ${clock(point.at_s, false)}`;
};

// series: [{name, colour, of: point => number or null}]; bars are stacked, lines are not.
// least: the axis reaches at least so far, so that one request does not fill it.
export function chart({ title, total, points, by, series, kind, write, least = 1 }) {
  const plot = h("div", { class: "plot" });
  const told = h("div", { class: "told", hidden: true });
  const name = unique("chart");
  const legend =
    series.length > 1 &&
    h(
      "ul",
      { class: "legend" },
      series.map((one) => h("li", {}, h("i", { class: one.colour }), one.name)),
    );
  const columns = [["Time", ""], ...series.map((one) => [one.name, "n"])];
  const rows = () =>
    points.map((point) => [whenOf(point, by), ...series.map((one) => write(one.of(point)))]);
  const details = h("details", {}, h("summary", {}, "As a table"));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1)
      details.append(table(columns, rows(), { class: "dense" }));
  });
  const figure = h(
    "figure",
    { class: "chart", "aria-labelledby": name },
    h(
      "figcaption",
      {},
      h("h3", { id: name }, title),
      total && h("span", { class: "n" }, total),
      legend,
    ),
    h("div", { class: "plot-frame" }, plot, told),
    details,
  );

  const draw = () => {
    const width = Math.max(220, plot.clientWidth);
    plot.replaceChildren(drawn({ width, title, points, by, series, kind, write, least, told }));
  };
  const watch = new ResizeObserver(draw);
  watch.observe(plot);
  return figure;
}

function drawn({ width, title, points, by, series, kind, write, least, told }) {
  const floor = HEIGHT - EDGE.bottom;
  const values = points.map((point) => series.map((one) => one.of(point)));
  const tops = values.map((each) => {
    const found = each.filter((one) => one !== null && one !== undefined);
    return kind === "bars" ? found.reduce((sum, one) => sum + one, 0) : Math.max(0, ...found);
  });
  const up = upright(tops, floor, EDGE.top, least);
  const longest = Math.max(...up.ticks.map((tick) => write(tick).length));
  const inner = [Math.max(EDGE.left, 14 + WIDEST * longest), width - EDGE.right];
  const slot = (inner[1] - inner[0]) / points.length;
  const along = (at) => inner[0] + (at + 0.5) * slot;
  const svg = s("svg", {
    viewBox: `0 0 ${width} ${HEIGHT}`,
    width,
    height: HEIGHT,
    role: "img",
    tabindex: 0,
    "aria-label": `${title}. Left and right arrows read the values; the table below has all of them.`,
  });
  for (const tick of up.ticks) {
    svg.append(
      s("line", { class: "grid", x1: inner[0], x2: inner[1], y1: up.at(tick), y2: up.at(tick) }),
      s("text", { x: inner[0] - 8, y: up.at(tick) + 4, "text-anchor": "end" }, write(tick)),
    );
  }
  const most = Math.max(2, Math.floor((inner[1] - inner[0]) / 90));
  for (const at of times(points, by, most)) {
    const text =
      by === "hour"
        ? new Date(1000 * points[at].at_s).getHours()
          ? clock(points[at].at_s, false)
          : day(points[at].at_s)
        : whenOf(points[at], by);
    svg.append(
      s(
        "text",
        { x: Math.min(along(at), width - 22), y: HEIGHT - 6, "text-anchor": "middle" },
        text,
      ),
    );
  }
  svg.append(
    ...(kind === "bars"
      ? bars(values, series, up, along, slot, floor)
      : lines(values, series, up, along)),
  );
  const cross = s("line", { class: "cross", y1: EDGE.top, y2: floor, hidden: true });
  const dots =
    kind === "lines"
      ? series.map((one) =>
          s("circle", { class: `dot ${one.colour}`, r: 3.5, visibility: "hidden" }),
        )
      : [];
  svg.append(cross, ...dots);

  let shown = -1;
  const show = (at) => {
    shown = at;
    const point = points[at];
    cross.removeAttribute("hidden");
    cross.setAttribute("x1", along(at));
    cross.setAttribute("x2", along(at));
    dots.forEach((dot, which) => {
      const value = values[at][which];
      dot.setAttribute("visibility", value === null || value === undefined ? "hidden" : "visible");
      if (value !== null && value !== undefined) {
        dot.setAttribute("cx", along(at));
        dot.setAttribute("cy", up.at(value));
      }
    });
    told.replaceChildren(
      h("b", {}, whenOf(point, by)),
      h(
        "dl",
        {},
        series.map((one, which) => [
          h("dt", {}, h("i", { class: one.colour }), one.name),
          h("dd", {}, write(values[at][which])),
        ]),
      ),
    );
    told.hidden = false;
    const left = along(at) > width / 2 ? along(at) - told.offsetWidth - 10 : along(at) + 10;
    told.style.transform = `translateX(${Math.max(0, left)}px)`;
  };
  const hide = () => {
    shown = -1;
    cross.setAttribute("hidden", "");
    dots.forEach((dot) => dot.setAttribute("visibility", "hidden"));
    told.hidden = true;
  };
  svg.addEventListener("pointermove", (event) => {
    const at = Math.floor((event.offsetX - inner[0]) / slot);
    if (at >= 0 && at < points.length) show(at);
    else hide();
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -points.length, End: points.length };
    if (event.key === "Escape") hide();
    if (!(event.key in moves)) return;
    event.preventDefault();
    const from = shown < 0 ? points.length - (moves[event.key] < 0 ? 0 : 1) : shown;
    show(Math.min(points.length - 1, Math.max(0, from + moves[event.key])));
  });
  return svg;
}

function bars(values, series, up, along, slot, floor) {
  const wide = Math.max(1, Math.min(22, slot * 0.72));
  return values.flatMap((each, at) => {
    let base = floor;
    return series
      .map((one, which) => {
        const tall = floor - up.at(each[which] || 0);
        if (tall <= 0) return null;
        base -= tall;
        return s("rect", {
          class: one.colour,
          x: along(at) - wide / 2,
          y: base,
          width: wide,
          height: tall,
        });
      })
      .filter(Boolean);
  });
}

// A line ends where nothing was measured; a point on its own is a dot.
function lines(values, series, up, along) {
  return series.flatMap((one, which) => {
    const runs = [[]];
    values.forEach((each, at) => {
      const value = each[which];
      if (value === null || value === undefined) runs.push([]);
      else runs[runs.length - 1].push([along(at), up.at(value)]);
    });
    return runs
      .filter((run) => run.length)
      .map((run) =>
        run.length === 1
          ? s("circle", { class: `dot ${one.colour}`, cx: run[0][0], cy: run[0][1], r: 2.5 })
          : s("polyline", {
              class: `curve ${one.colour}`,
              points: run.map((place) => place.map((n) => n.toFixed(1)).join(",")).join(" "),
            }),
      );
  });
}
