// Requests as they end, with search, and what was tried for each.

import { events, get } from "../api.js";
import { failure } from "../failure.js";
import { dialog, empty, h, select, table, tableRow } from "../shared/dom.js";
import { clock, count, day, ms, OUTCOMES, usdInColumn } from "../format.js";
import { keyLabels } from "./key_labels.js";
import { requestDetails } from "./request_details.js";

const PAGE = 50;
const MOST_SHOWN = 500;
const COLUMNS = [
  ["Time", "name"],
  ["Outcome", ""],
  ["Model", ""],
  ["Target", ""],
  ["Key", ""],
  ["Tokens in", "n"],
  ["Tokens out", "n"],
  ["Cost", "n"],
  ["First token", "n"],
  ["Total", "n"],
];

export const outcomeMark = (entry) => {
  const [words, kind] = OUTCOMES[entry.outcome];
  return h(
    "span",
    { class: `mark ${kind}` },
    entry.outcome === "answered" ? words : `${words} ${entry.status}`,
  );
};

function when(entry) {
  const today = day(entry.at_s) === day(Date.now() / 1000);
  return today ? clock(entry.at_s) : `${day(entry.at_s)}, ${clock(entry.at_s)}`;
}

function row(line, fresh, labels) {
  const { entry } = line;
  const about = entry.usage_from === "estimated" ? "about " : "";
  const open = () => openDetails(entry, labels);
  const tried =
    entry.attempts.length > 1
      ? h("small", { class: "block" }, `${entry.attempts.length} attempts`)
      : "";
  return tableRow(
    COLUMNS,
    [
      h("button", { type: "button", class: "link", onclick: open }, when(entry)),
      h(
        "div",
        {},
        outcomeMark(entry),
        entry.cache ? h("small", { class: "block" }, "from the cache") : "",
      ),
      h("div", {}, entry.model, entry.purpose ? h("small", { class: "block" }, entry.purpose) : ""),
      h("div", {}, entry.target || "none", tried),
      entry.key
        ? h("span", { title: entry.key, "data-key": entry.key }, labels.get(entry.key) || entry.key)
        : "none",
      about + count(line.prompt_tokens),
      count(line.completion_tokens),
      entry.usage && entry.cost_nusd === null ? "unknown" : usdInColumn(entry.cost_nusd),
      entry.stream ? ms(entry.first_token_ms) : "–",
      ms(entry.total_ms),
    ],
    {
      class: fresh ? "fresh" : "",
      onclick: (event) => {
        if (!event.target.closest("button")) open();
      },
    },
  );
}

function openDetails(entry, labels) {
  const body = h("div", {}, h("p", { class: "quiet" }, "Loading"));
  dialog("Request", () => body, { kind: "drawer" });
  get(`log/${encodeURIComponent(entry.id)}`, { at_s: entry.at_s }).then(
    (told) => body.replaceChildren(...requestDetails(told, labels)),
    (error) => body.replaceChildren(failure(error)),
  );
}

export function logView(root, about) {
  let control = new AbortController();
  let paused = false;
  let waiting = [];
  let cursor = null;
  let timer = null;
  let ended = false;
  const labels = new Map();
  const lookedFor = new Set();
  const changed = () => {
    clearTimeout(timer);
    timer = setTimeout(restart, 250);
  };
  const text = h("input", {
    type: "search",
    placeholder: "Id, model, target, team or failure",
    "aria-label": "Search the log",
    oninput: changed,
  });
  const model = h("input", {
    type: "search",
    placeholder: "Model",
    "aria-label": "Model",
    list: "log-models",
    oninput: changed,
  });
  const key = h("input", {
    type: "search",
    placeholder: "Key id",
    "aria-label": "Key id",
    oninput: changed,
  });
  const outcome = select(
    [["", "Every outcome"], ...Object.entries(OUTCOMES).map(([value, [words]]) => [value, words])],
    "",
    () => restart(),
  );
  outcome.setAttribute("aria-label", "Outcome");
  const place = select(
    [
      ["names", "In names and failures"],
      ["bodies", "In requests and answers"],
    ],
    "names",
    () => restart(),
  );
  place.setAttribute("aria-label", "Where to search");
  place.hidden = !about.request_log;
  const names = h("datalist", { id: "log-models" });
  const pause = h(
    "button",
    {
      type: "button",
      "aria-pressed": "false",
      onclick: () => {
        paused = !paused;
        drawPause();
        if (!paused) resume();
      },
    },
    "Pause",
  );
  const live = h("span", { class: "live", role: "status" }, "Connecting");
  const frame = table(COLUMNS, [], { class: "stack log" });
  const lines = frame.querySelector("tbody");
  const card = h("div", { class: "card", hidden: true }, frame);
  const older = h(
    "button",
    { type: "button", class: "quiet", hidden: true, onclick: () => page() },
    "Show older requests",
  );
  const said = h("div", {}, h("p", { class: "quiet" }, "Loading"));
  const inBodies = () => place.value === "bodies" && text.value.trim() !== "";
  const query = () => ({
    text: text.value.trim(),
    model: model.value.trim(),
    key: key.value.trim(),
    outcome: outcome.value,
  });

  function drawPause() {
    pause.textContent = paused
      ? waiting.length
        ? `Resume (${waiting.length} new)`
        : "Resume"
      : "Pause";
    pause.setAttribute("aria-pressed", String(paused));
  }

  function drawEmpty() {
    card.hidden = !lines.children.length;
    if (lines.children.length) said.replaceChildren();
    else if (Object.values(query()).some(Boolean))
      said.replaceChildren(empty("No request matches", "Try fewer words, or another outcome."));
    else said.replaceChildren(empty("No requests yet", "Each appears here when it ends."));
  }

  function add(line, lost) {
    if (lost)
      lines.prepend(
        h(
          "tr",
          {},
          h(
            "td",
            { colspan: COLUMNS.length, class: "quiet" },
            `${count(lost)} lines arrived too fast for this page; they are in the ledger.`,
          ),
        ),
      );
    lines.prepend(row(line, true, labels));
    look(line.entry.key);
    while (lines.children.length > MOST_SHOWN) lines.lastChild.remove();
    drawEmpty();
  }

  const learn = (found) => found.forEach((label, id) => labels.set(id, label));

  // Keys may be made while the log is open; one without a label is looked for once.
  async function look(id) {
    if (!id || labels.has(id) || lookedFor.has(id)) return;
    lookedFor.add(id);
    learn(await keyLabels());
    for (const cell of lines.querySelectorAll("[data-key]"))
      cell.textContent = labels.get(cell.dataset.key) || cell.dataset.key;
  }

  function resume() {
    waiting.splice(0).forEach(([line, lost]) => add(line, lost));
    drawPause();
  }

  async function page() {
    const { signal } = control;
    older.disabled = true;
    try {
      const [told, found] = await Promise.all([
        get("log", { ...query(), in: inBodies() ? "bodies" : "", limit: PAGE, cursor }, signal),
        keyLabels(),
      ]);
      learn(found);
      lines.append(...told.lines.map((line) => row(line, false, labels)));
      cursor = told.cursor;
      older.hidden = !cursor;
      drawEmpty();
      if (!about.ledger && lines.children.length)
        said.replaceChildren(
          h(
            "p",
            { class: "hint" },
            "No ledger is kept: these are the last requests in memory, and they are lost at the next start.",
          ),
        );
    } catch (error) {
      if (error.name !== "AbortError" && !ended) said.replaceChildren(failure(error));
    }
    older.disabled = false;
  }

  async function listen(signal) {
    if (inBodies()) {
      live.textContent = "Not live while requests and answers are searched";
      live.className = "live";
      return;
    }
    for (let wait = 1000; !signal.aborted; wait = Math.min(30000, 2 * wait)) {
      try {
        const stream = events("GET", "log/stream", { query: query(), signal });
        live.textContent = "Live";
        live.className = "live on";
        for await (const { line, lost } of stream) {
          wait = 1000;
          if (!line) continue;
          if (paused) {
            waiting.push([line, lost || 0]);
            if (waiting.length > MOST_SHOWN) waiting.shift();
            drawPause();
          } else add(line, lost);
        }
      } catch (error) {
        if (signal.aborted || error.status === 401) return;
        live.textContent = "Not connected; trying again";
        live.className = "live";
      }
      await new Promise((resolve) => {
        setTimeout(resolve, wait);
      });
    }
  }

  function restart() {
    control.abort();
    control = new AbortController();
    waiting = [];
    cursor = null;
    lines.replaceChildren();
    drawPause();
    listen(control.signal);
    page();
  }

  root.append(
    h("div", { class: "head" }, h("h1", {}, "Live log"), live, pause),
    h("div", { class: "filters" }, text, place, model, key, outcome, names),
    said,
    card,
    h("div", { class: "row middle" }, older),
  );
  get("routes").then(
    (told) => names.append(...told.models.map((one) => h("option", { value: one.name }))),
    () => {},
  );
  restart();
  return () => {
    ended = true;
    clearTimeout(timer);
    control.abort();
  };
}
