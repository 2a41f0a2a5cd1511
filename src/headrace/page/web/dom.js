// Elements, whose text is only ever set as text: prompts, names and errors are written by others.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(
    ...children.flat(3).filter((one) => one !== null && one !== undefined && one !== false),
  );
  return element;
}

export const h = (tag, attributes, ...children) =>
  fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

// Announces a change to screen readers.
export function announce(text) {
  document.getElementById("said").textContent = text;
}

// A note at the corner, for some seconds.
export function note(text, kind = "good") {
  const one = h("p", { class: `note ${kind}`, role: kind === "bad" ? "alert" : "status" }, text);
  document.getElementById("notes").append(one);
  setTimeout(() => one.remove(), kind === "bad" ? 9000 : 4000);
}

let serial = 0;
export const unique = (name) => `${name}-${(serial += 1)}`;

// A labelled field; `input` is any control.
export function field(label, input, help) {
  input.id = input.id || unique("field");
  const hint = help && h("small", { id: `${input.id}-help` }, help);
  if (hint) input.setAttribute("aria-describedby", hint.id);
  return h("div", { class: "field" }, h("label", { for: input.id }, label), input, hint);
}

export function select(options, chosen, onchange) {
  return h(
    "select",
    { onchange },
    options.map(([value, text]) => h("option", { value, selected: value === chosen }, text)),
  );
}

// One of a few, all of them seen.
export function segments(label, options, chosen, onchoose) {
  const buttons = options.map(([value, text]) =>
    h(
      "button",
      {
        type: "button",
        "aria-pressed": String(value === chosen),
        onclick: () => {
          buttons.forEach((one, at) =>
            one.setAttribute("aria-pressed", String(options[at][0] === value)),
          );
          onchoose(value);
        },
      },
      text,
    ),
  );
  return h("div", { class: "segments", role: "group", "aria-label": label }, buttons);
}

// columns: [title, class]; rows: lists of cells. On narrow screens a cell has its title before it.
export function table(columns, rows, attributes = {}) {
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      attributes,
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          columns.map(([title, kind]) => h("th", { scope: "col", class: kind }, title)),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map((row) => tableRow(columns, row)),
      ),
    ),
  );
}

export function tableRow(columns, cells, attributes = {}) {
  return h(
    "tr",
    attributes,
    cells.map((cell, at) => h("td", { class: columns[at][1], "data-title": columns[at][0] }, cell)),
  );
}

export const empty = (title, ...words) =>
  h("div", { class: "empty" }, h("h3", {}, title), h("p", {}, words));

// Copies a text; where the page is not a secure context there is no clipboard but the selection's.
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return;
  } catch {
    /* there is none, or it is not permitted here */
  }
  const area = h("textarea", { class: "unseen", value: text, "aria-hidden": "true" });
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

// A button that copies what `read` returns when it is pressed.
export function copyButton(read, label = "Copy", attributes = {}) {
  const button = h(
    "button",
    {
      type: "button",
      class: "quiet",
      ...attributes,
      onclick: async () => {
        await copyText(read());
        button.textContent = "Copied";
        setTimeout(() => {
          button.textContent = label;
        }, 1500);
      },
    },
    label,
  );
  return button;
}

// Calls again after a while, but not while the page is hidden.
export function later(call, after) {
  return setTimeout(() => {
    if (!document.hidden) call();
    else document.addEventListener("visibilitychange", call, { once: true });
  }, after);
}

// A dialog that closes by Escape and returns the focus. `content` gets a function that closes it.
export function dialog(title, content, { kind = "", onclose } = {}) {
  const before = document.activeElement;
  const heading = h("h2", { id: unique("dialog") }, title);
  const box = h("dialog", { class: kind, "aria-labelledby": heading.id });
  const close = () => box.close();
  box.append(
    h(
      "div",
      { class: "dialog-head" },
      heading,
      h(
        "button",
        { type: "button", class: "quiet", "aria-label": "Close", onclick: close },
        "Close",
      ),
    ),
    h("div", { class: "dialog-body" }, content(close, box)),
  );
  box.addEventListener("close", () => {
    box.remove();
    if (onclose) onclose();
    if (before && before.isConnected) before.focus();
  });
  box.addEventListener("click", (event) => {
    if (event.target === box && kind === "drawer") close();
  });
  document.body.append(box);
  box.showModal();
  return box;
}

// Asks before what cannot be undone.
export function confirm(title, words, action, act) {
  dialog(
    title,
    (close) => {
      const go = h(
        "button",
        {
          type: "button",
          class: "danger",
          onclick: async () => {
            go.disabled = true;
            try {
              await act();
            } finally {
              close();
            }
          },
        },
        action,
      );
      return [
        h("p", {}, words),
        h(
          "div",
          { class: "row end" },
          h("button", { type: "button", class: "quiet", onclick: close }, "Cancel"),
          go,
        ),
      ];
    },
    { kind: "small" },
  );
}
