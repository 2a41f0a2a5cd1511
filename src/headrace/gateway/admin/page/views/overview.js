// Traffic, latency, cost and errors, over time, in all, and by model, target and key.

import { file, get } from "../api.js";
import { chart } from "../chart.js";
import { failure } from "../failure.js";
import { empty, h, later, note, segments, table } from "../shared/dom.js";
import { keyLabels } from "./key_labels.js";
import { compact, count, ms, percent, usd } from "../format.js";

// Name, the parts it is shown by, their length in seconds, and how many they are.
const RANGES = {
  hour: ["1 hour", "minute", 60, 60],
  day: ["24 hours", "hour", 3600, 24],
  week: ["7 days", "hour", 3600, 7 * 24],
  month: ["30 days", "day", 86400, 30],
};
const GROUPS = [
  ["model", "Models"],
  ["key", "Keys"],
  ["team", "Teams"],
  ["provider", "Providers"],
  ["target", "Targets"],
];
const REFRESH_MS = 15000;

const chosen = { range: "day", by: "model" };

const figure = (title, value, beside) =>
  h("div", { class: "tile" }, h("span", {}, title), h("b", {}, value), h("small", {}, beside));

function tiles(all) {
  const answered = all.requests - all.refused;
  return h(
    "div",
    { class: "tiles" },
    figure("Requests", compact(all.requests), `${compact(all.cache_hits)} from the cache`),
    figure(
      "Failed",
      percent(all.errors, answered),
      `${compact(all.errors)} failed of ${compact(answered)}; ${compact(all.refused)} refused, not counted`,
    ),
    figure(
      "Cost",
      usd(all.cost_nusd),
      all.unknown_cost
        ? `without ${compact(all.unknown_cost)} of unknown price`
        : "every price known",
    ),
    figure(
      "Tokens",
      compact(all.input_tokens + all.output_tokens),
      `${compact(all.input_tokens)} in, ${compact(all.output_tokens)} out`,
    ),
    figure("Response time", ms(all.total_ms_p50), `median; 95 % within ${ms(all.total_ms_p95)}`),
    figure(
      "First token",
      ms(all.first_token_ms_p50),
      `median; 95 % within ${ms(all.first_token_ms_p95)}`,
    ),
  );
}

function charts(told) {
  const { series: points, by, totals } = told;
  const plot = (title, kind, write, series, more = {}) =>
    chart({ title, kind, write, points, by, series, ...more });
  const quantiles = (name) => [
    { name: "median", colour: "c1", of: (one) => one[`${name}_p50`] },
    { name: "95 %", colour: "c2", of: (one) => one[`${name}_p95`] },
    { name: "99 %", colour: "c3", of: (one) => one[`${name}_p99`] },
  ];
  return h(
    "div",
    { class: "charts" },
    plot(
      "Requests",
      "bars",
      compact,
      [
        { name: "from providers", colour: "c1", of: (one) => one.requests - one.cache_hits },
        { name: "from the cache", colour: "c3", of: (one) => one.cache_hits },
      ],
      { total: count(totals.requests), least: 4 },
    ),
    plot("Response time", "lines", ms, quantiles("total_ms"), { least: 20 }),
    plot("Cost", "bars", usd, [{ name: "cost", colour: "c4", of: (one) => one.cost_nusd }], {
      total: usd(totals.cost_nusd),
      least: 100,
    }),
    plot(
      "Failures",
      "bars",
      compact,
      [
        { name: "failed", colour: "bad", of: (one) => one.errors },
        { name: "refused", colour: "warn", of: (one) => one.refused },
        { name: "client left", colour: "c0", of: (one) => one.client_gone },
      ],
      { total: count(totals.errors + totals.refused + totals.client_gone), least: 4 },
    ),
    plot("Time to first token", "lines", ms, quantiles("first_token_ms"), { least: 20 }),
    plot(
      "Tokens",
      "bars",
      compact,
      [
        { name: "in", colour: "c1", of: (one) => one.input_tokens },
        { name: "out", colour: "c2", of: (one) => one.output_tokens },
      ],
      { total: count(totals.input_tokens + totals.output_tokens), least: 4 },
    ),
  );
}

function share(value, most) {
  const bar = h("i", { class: "share" });
  bar.style.setProperty("--part", most ? value / most : 0);
  return bar;
}

function groups(report, by, labels) {
  const rows = [...report.rows].sort((one, other) => other.requests - one.requests);
  const most = Math.max(0, ...rows.map((one) => one.requests));
  const read = (one) =>
    one.input_tokens +
    one.cache_read_tokens +
    one.cache_write_tokens +
    one.cache_write_1h_tokens +
    one.input_audio_tokens;
  const columns = [
    [by, "name"],
    ["requests", "n"],
    ["failed", "n"],
    ["tokens in", "n"],
    ["tokens out", "n"],
    ["cost", "n"],
    ["median", "n"],
    ["95 %", "n"],
  ];
  return table(
    columns,
    rows
      .slice(0, 50)
      .map((one) => [
        h(
          "div",
          {},
          h("span", { title: one[by] }, (by === "key" && labels.get(one.key)) || one[by] || "none"),
          share(one.requests, most),
        ),
        count(one.requests),
        count(one.failed + one.cut),
        compact(read(one)),
        compact(one.output_tokens + one.reasoning_tokens + one.output_audio_tokens),
        one.unknown_cost && !one.cost_nusd ? "unknown" : usd(one.cost_nusd),
        ms(one.total_ms_p50),
        ms(one.total_ms_p95),
      ]),
    { class: "stack" },
  );
}

export function overviewView(root, about) {
  const body = h("div", {}, h("p", { class: "quiet" }, "Loading"));
  const lower = h("div", {});
  let told = null;
  let timer = null;
  let ended = false;

  async function load() {
    clearTimeout(timer);
    if (ended) return;
    try {
      const [, by, length, parts] = RANGES[chosen.range];
      const since = (Math.floor(Date.now() / 1000 / length) + 1 - parts) * length;
      told = await get("overview", { since, by });
      const [report, labels] = await Promise.all([
        get("usage", { by: chosen.by, since: told.since_s, until: told.before_s }),
        keyLabels(),
      ]);
      if (ended) return;
      const opened = [...body.querySelectorAll("details")].map((one) => one.open);
      if (told.totals.requests) body.replaceChildren(tiles(told.totals), charts(told));
      else
        body.replaceChildren(
          tiles(told.totals),
          empty(
            "No requests in this time",
            "Requests appear here as soon as a client sends one. Those of the playground count too.",
          ),
        );
      body.querySelectorAll("details").forEach((one, at) => {
        one.open = Boolean(opened[at]);
      });
      lower.replaceChildren(
        report.rows.length
          ? groups(report, chosen.by, labels)
          : h("p", { class: "quiet" }, "Nothing yet."),
      );
    } catch (error) {
      if (!ended) body.replaceChildren(failure(error));
      if (error.code === "no_ledger" || error.status === 401) return;
    }
    if (!ended) timer = later(load, REFRESH_MS);
  }

  async function download() {
    try {
      const url = URL.createObjectURL(
        await file("usage", {
          by: `day,${chosen.by}`,
          since: told?.since_s,
          until: told?.before_s,
          format: "csv",
        }),
      );
      h("a", { href: url, download: "usage.csv" }).click();
      setTimeout(() => URL.revokeObjectURL(url), 1000);
    } catch (error) {
      note(error.message, "bad");
    }
  }

  root.append(
    h(
      "div",
      { class: "head" },
      h("h1", {}, "Overview"),
      segments(
        "Time",
        Object.entries(RANGES).map(([name, [title]]) => [name, title]),
        chosen.range,
        (name) => {
          chosen.range = name;
          load();
        },
      ),
    ),
    body,
  );
  if (about.ledger) {
    root.append(
      h(
        "div",
        { class: "head second" },
        h("h2", {}, "Usage"),
        segments("By", GROUPS, chosen.by, (name) => {
          chosen.by = name;
          load();
        }),
        h("button", { type: "button", class: "quiet", onclick: download }, "Download CSV"),
      ),
      h("div", { class: "card" }, lower),
    );
  }
  load();
  return () => {
    ended = true;
    clearTimeout(timer);
  };
}
