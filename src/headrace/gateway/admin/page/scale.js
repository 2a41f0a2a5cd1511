// Where values stand on an axis. Ticks are multiples of 1, 2 or 5 times a power of ten.

function step(atLeast) {
  const decade = 10 ** Math.floor(Math.log10(atLeast));
  return [1, 2, 5, 10].map((one) => one * decade).find((one) => one >= atLeast * 0.999999);
}

// From 0 to a whole tick at or above the largest value. least: no axis is shorter.
export function upright(values, start, end, least) {
  const most = Math.max(least, ...values);
  const by = step(most / 4);
  const top = Math.ceil(most / by - 1e-9) * by;
  const ticks = [];
  for (let at = 0; at * by <= top * 1.000001; at += 1) ticks.push(at * by);
  return { at: (value) => start + (value / top) * (end - start), ticks };
}

// Times that are written below an axis: at most `most` of them, at round hours or days.
export function times(points, by, most) {
  const every = {
    minute: [5, 10, 15, 30, 60],
    hour: [3, 6, 12, 24, 48],
    day: [1, 2, 5, 7, 14, 30],
  }[by];
  const length = { minute: 60, hour: 3600, day: 86400 }[by];
  const zone = by === "day" ? 0 : new Date(1000 * points[0].at_s).getTimezoneOffset() * 60;
  const places = (each) =>
    points
      .map((one, at) => [Math.round((one.at_s - zone) / length), at])
      .filter(([number]) => number % each === 0)
      .map(([, at]) => at);
  const found = every.map(places).find((one) => one.length <= most);
  return (
    found ||
    places(every[every.length - 1]).filter((_, at, all) => at % Math.ceil(all.length / most) === 0)
  );
}
