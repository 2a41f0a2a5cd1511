// Keys, the groups above them, and what is used, held and left of their budgets.

import { get, post, remove } from "../api.js";
import { failure } from "../failure.js";
import { confirm, dialog, empty, field, h, later, note, select, table } from "../shared/dom.js";
import { ago, count, moment, usd } from "../format.js";
import { editKey } from "./edit_key.js";
import { newKey, showKey } from "./new_key.js";

const REFRESH_MS = 5000;
const LIMITS = {
  rpm: "Requests per minute",
  tpm: "Tokens per minute",
  concurrency: "Concurrent requests",
  budget: "Budget",
};

// Used, then held back for running requests, of the limit.
export function meter(one) {
  const bar = h(
    "span",
    { class: "meter", "aria-hidden": "true" },
    h("i", { class: "used" }),
    h("i", { class: "held" }),
  );
  const part = (amount) => (one.limit ? Math.min(1, amount / one.limit) : 1);
  bar.style.setProperty("--used", part(one.used));
  bar.style.setProperty("--held", Math.min(part(one.held), 1 - part(one.used)));
  if (part(one.used + one.held) >= 0.95) bar.classList.add("full");
  else if (part(one.used + one.held) >= 0.85) bar.classList.add("high");
  const amount = one.unit === "nusd" ? usd : count;
  const held = one.held && one.unit !== "running" ? `, ${amount(one.held)} held` : "";
  const used = one.unit === "running" ? `${count(one.held)} running` : `${amount(one.used)} used`;
  const of = [one.limit_name === "budget" && one.window, one.model !== "*" && `of ${one.model}`]
    .filter(Boolean)
    .join(", ");
  return h(
    "div",
    {
      class: "metered",
      title: `exactly ${one.used_text} used, ${one.held_text} held, of ${one.limit_text}`,
    },
    h("span", {}, LIMITS[one.limit_name], h("small", {}, ` ${of}`)),
    bar,
    h("small", { class: "n" }, `${used}${held} of ${amount(one.limit)}`),
  );
}

const meters = (all) =>
  all.length
    ? h("div", { class: "meters" }, all.map(meter))
    : h("span", { class: "quiet" }, "no limits of its own");

function state(key) {
  if (key.blocked) return h("span", { class: "mark bad" }, "Blocked");
  if (key.blocked_by) return h("span", { class: "mark bad" }, `Blocked by ${key.blocked_by}`);
  if (key.expires_ms && key.expires_ms <= Date.now())
    return h("span", { class: "mark warn" }, "Expired");
  return h("span", { class: "mark good" }, "Active");
}

const belongs = (key) =>
  [key.organisation, key.team, key.user].filter(Boolean).join(" / ") || "none";

function identity(key) {
  const ends = key.ends.length ? ` …${key.ends.join(", …")}` : "";
  return h(
    "div",
    {},
    h("b", {}, key.label || key.id),
    h("small", { class: "block code" }, `${key.label ? key.id : ""}${ends}`),
    key.source === "file" && h("small", { class: "block" }, "in the gateway's file"),
  );
}

export function keysView(root) {
  let timer = null;
  let ended = false;
  let told = null;
  const search = h("input", {
    type: "search",
    placeholder: "Label, id, team or user",
    "aria-label": "Search keys",
    oninput: () => again(250),
  });
  const make = h(
    "button",
    { type: "button", class: "primary", disabled: true, onclick: () => newKey(told, load) },
    "New key",
  );
  const body = h("div", {}, h("p", { class: "quiet" }, "Loading"));

  const act = async (work, done) => {
    try {
      await work();
      note(done);
      // Not awaited: a dialog that is still open over the new list would receive what is typed there.
      load();
    } catch (error) {
      note(error.message, "bad");
    }
  };
  const path = (key) => `keys/${encodeURIComponent(key.id)}`;
  const called = (key) => key.label || key.id;

  function rotate(key) {
    dialog(
      `Rotate ${called(key)}`,
      (close) => {
        const overlap = select(
          [
            ["0", "stops working at once"],
            ["1", "works for 1 more day"],
            ["7", "works for 7 more days"],
            ["30", "works for 30 more days"],
          ],
          "0",
        );
        const go = h("button", { class: "primary" }, "Make another key");
        return h(
          "form",
          {
            onsubmit: async (event) => {
              event.preventDefault();
              go.disabled = true;
              try {
                const made = await post(`${path(key)}/rotate`, {
                  overlap_days: Number(overlap.value),
                });
                close();
                showKey(made);
                load();
              } catch (error) {
                note(error.message, "bad");
                go.disabled = false;
              }
            },
          },
          h("p", {}, "Its spending and its limits stay."),
          field("The current key", overlap),
          h(
            "div",
            { class: "row end" },
            h("button", { type: "button", class: "quiet", onclick: close }, "Cancel"),
            go,
          ),
        );
      },
      { kind: "small" },
    );
  }

  function actions(key) {
    if (key.source === "file") return "";
    const button = (title, onclick) =>
      h(
        "button",
        { type: "button", class: "quiet", "aria-label": `${title} ${called(key)}`, onclick },
        title,
      );
    return h(
      "div",
      { class: "row end" },
      key.blocked
        ? button("Unblock", () =>
            act(() => post(`${path(key)}/unblock`), `${called(key)} is unblocked.`),
          )
        : button("Block", () =>
            confirm(
              `Block ${called(key)}?`,
              "Every request with it is refused until it is unblocked.",
              "Block",
              () => act(() => post(`${path(key)}/block`), `${called(key)} is blocked.`),
            ),
          ),
      button("Edit", () => editKey(key, load)),
      button("Rotate", () => rotate(key)),
      button("Delete", () =>
        confirm(
          `Delete ${called(key)}?`,
          "It is removed for good, and clients that use it are refused. What was spent with it stays in the ledger.",
          "Delete",
          () => act(() => remove(path(key)), `${called(key)} is deleted.`),
        ),
      ),
    );
  }

  function draw() {
    const columns = [
      ["Key", "name"],
      ["Belongs to", ""],
      ["Models", ""],
      ["Used", "wide"],
      ["State", ""],
      ["", "n"],
    ];
    const rows = told.keys.map((key) => [
      identity(key),
      belongs(key),
      key.models.join(", ") || "all",
      meters(key.meters),
      h(
        "div",
        {},
        state(key),
        h(
          "small",
          { class: "block", title: moment(key.expires_ms / 1000) },
          key.expires_ms ? `ends ${ago(key.expires_ms)}` : "",
        ),
        h("small", { class: "block" }, key.created_ms ? `made ${ago(key.created_ms)}` : ""),
      ),
      actions(key),
    ]);
    const parts = [];
    if (!told.required)
      parts.push(
        h(
          "p",
          { class: "hint" },
          "This gateway does not require keys of clients (access.require_key is false), so nothing is counted by key.",
        ),
      );
    if (!told.can_make)
      parts.push(
        h(
          "p",
          { class: "hint" },
          "Keys cannot be made here: access.store in the gateway's file is missing; it names the file to keep them in.",
        ),
      );
    if (rows.length)
      parts.push(h("div", { class: "card" }, table(columns, rows, { class: "stack keys" })));
    else if (search.value)
      parts.push(
        empty("No key matches", `No key has “${search.value}” in its label, id or group.`),
      );
    else
      parts.push(
        empty(
          "No keys yet",
          told.can_make
            ? "Make one for each application, with a budget if needed."
            : "Keys in the gateway's file are listed here.",
        ),
      );
    if (told.total > told.keys.length)
      parts.push(
        h(
          "p",
          { class: "quiet" },
          `${told.keys.length} of ${told.total} keys are shown; search for the others.`,
        ),
      );
    if (told.groups.length) {
      parts.push(
        h("h2", {}, "Organisations, teams and users"),
        h(
          "div",
          { class: "card" },
          table(
            [
              ["Name", "name"],
              ["Level", ""],
              ["Belongs to", ""],
              ["Models", ""],
              ["Used", "wide"],
              ["State", ""],
            ],
            told.groups.map((one) => [
              h("b", {}, one.name),
              one.level,
              one.parent || "none",
              one.models.join(", ") || "all",
              meters(one.meters),
              state(one),
            ]),
            { class: "stack keys" },
          ),
        ),
      );
    }
    const focused = document.activeElement?.getAttribute("aria-label");
    body.replaceChildren(...parts);
    if (focused && document.activeElement === document.body)
      body.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
  }

  let asked = 0;
  async function load() {
    clearTimeout(timer);
    if (ended) return;
    // The answer to an earlier request may arrive later.
    const mine = ++asked;
    try {
      const found = await get("keys", { text: search.value.trim() });
      if (ended || mine !== asked) return;
      told = found;
      make.disabled = !told.can_make;
      draw();
    } catch (error) {
      if (ended || mine !== asked) return;
      body.replaceChildren(failure(error));
      if (error.status === 401) return;
    }
    again(REFRESH_MS);
  }
  function again(after) {
    clearTimeout(timer);
    if (!ended) timer = later(load, after);
  }

  root.append(h("div", { class: "head" }, h("h1", {}, "Keys and budgets"), search, make), body);
  load();
  return () => {
    ended = true;
    clearTimeout(timer);
  };
}
