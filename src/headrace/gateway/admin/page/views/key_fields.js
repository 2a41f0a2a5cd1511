// Fields of a key, where one is made and where one is changed.

import { field, h, select } from "../shared/dom.js";

const NUSD_PER_USD = 1e9;
const WINDOWS = [
  ["1m", "minute"],
  ["5m", "5 minutes"],
  ["1h", "hour"],
  ["1d", "day"],
  ["1w", "week"],
  ["1M", "month"],
  ["1Y", "year"],
  ["total", "in all"],
];
const LIMITS = {
  rpm: "Requests per minute",
  tpm: "Tokens per minute",
  concurrency: "Concurrent requests",
};

export const number = (attributes) =>
  h("input", { type: "number", inputmode: "decimal", ...attributes });

// names: the current value.
export function models(given) {
  const input = h("input", { autocomplete: "off", placeholder: "all", value: given.join(", ") });
  return {
    field: field("Models", input, "Names or patterns such as gpt-*, separated by commas."),
    names: () => input.value.split(/[\s,]+/).filter(Boolean),
  };
}

// before: a budget as the API returns it. wanted: as the API accepts it, null without one.
export function budgetFields(before) {
  const usd = number({ min: 0, step: "any", placeholder: "none" });
  const per = select(WINDOWS, before ? before.per : "1M");
  const calendar = h("input", { type: "checkbox" });
  if (before) usd.value = before.amount / NUSD_PER_USD;
  // A raise goes on where it is one still.
  const raised = () =>
    before && before.raised_to !== null && before.raised_to >= usd.value * NUSD_PER_USD
      ? {
          raised_to_usd: before.raised_to / NUSD_PER_USD,
          raised_until_ms: before.raised_until_ms,
        }
      : {};
  calendar.checked = Boolean(before && before.calendar);
  const check = field("calendar window (UTC)", calendar);
  check.classList.add("check");
  check.prepend(calendar);
  return {
    row: h("div", { class: "fields three" }, field("US dollars", usd), field("Per", per), check),
    wanted: () =>
      usd.value === ""
        ? null
        : {
            usd: Number(usd.value),
            per: per.value,
            calendar: calendar.checked && per.value !== "total",
            ...raised(),
          },
  };
}

// before: limits by name.
export function limitFields(before = {}) {
  const inputs = {};
  for (const name of Object.keys(LIMITS)) {
    inputs[name] = number({ min: 0, step: 1, placeholder: "none" });
    if (before[name] !== undefined) inputs[name].value = before[name];
  }
  const fields = Object.entries(LIMITS).map(([name, title]) => field(title, inputs[name]));
  return { row: h("div", { class: "fields three" }, fields), inputs };
}

export const buttons = (go, close) =>
  h(
    "div",
    { class: "row end" },
    h("button", { type: "button", class: "quiet", onclick: close }, "Cancel"),
    go,
  );
