// The page of /docs: shows openapi.json and sends requests. Text is only ever set as text.
"use strict";

const keyField = document.getElementById("key");
const state = document.getElementById("state");
let api = null;

// Elements.

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// Words with `code` in backquotes.
function words(text) {
  return (text || "").split("`").map((part, at) => (at % 2 ? make("code", {}, part) : part));
}

function table(heads, rows) {
  const head = make("tr", {}, ...heads.map((one) => make("th", { scope: "col" }, one)));
  const body = rows.map((row) => make("tr", {}, ...row.map((cell) => make("td", {}, ...cell))));
  return make("div", { class: "wide" },
    make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
}

// Schemas.

function resolved(item) {
  if (!item || !item.$ref) return item;
  return item.$ref.slice(2).split("/").reduce((at, step) => at[step], api);
}

function limits(schema, low, high) {
  const [least, most] = [schema[low], schema[high]];
  const wide = (number) => Math.abs(number) >= 2 ** 63 - 1024;
  const [isLow, isHigh] = [least, most].map((one) => one !== undefined && !wide(one));
  if (isLow && isHigh) return `${least} to ${most}`;
  return isLow ? `from ${least}` : isHigh ? `up to ${most}` : "";
}

function typeOf(schema) {
  if (!schema) return "anything";
  if (schema.$ref) return `object ${schema.$ref.split("/").pop()}`;
  if (schema.anyOf) {
    const types = schema.anyOf.filter((one) => one.type !== "null").map(typeOf);
    return [...new Set(types)].join(" or ");
  }
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) {
    return schema.enum.filter((one) => one !== null).map((one) => JSON.stringify(one)).join(" or ");
  }
  const types = [schema.type].flat().filter((one) => one && one !== "null");
  if (!types.length) return schema.type ? "nothing" : "anything";
  let text = types.join(" or ");
  if (schema.items) text = `list of ${typeOf(schema.items)}`;
  const bounds = [
    limits(schema, "minimum", "maximum"),
    [limits(schema, "minLength", "maxLength"), "characters"],
    [limits(schema, "minItems", "maxItems"), "items"],
  ].map((one) => (Array.isArray(one) ? (one[0] ? one.join(" ") : "") : one)).filter(Boolean);
  return bounds.length ? `${text}, ${bounds.join(", ")}` : text;
}

function structs(schema, found = new Map()) {
  for (const part of [schema, schema.items, ...(schema.anyOf || [])]) {
    if (!part) continue;
    if (part.$ref && !found.has(part.$ref)) {
      found.set(part.$ref, resolved(part));
      structs(resolved(part), found);
    } else if (part !== schema) structs(part, found);
  }
  for (const property of Object.values(schema.properties || {})) structs(property, found);
  return found;
}

const refused = (schema) => /^(Not supported|Accepted without effect)/.test(schema.description || "");

function fields(schema) {
  const required = new Set(schema.required || []);
  const rows = Object.entries(schema.properties || {});
  const row = ([name, one]) => [
    [make("code", {}, name), ...(required.has(name) ? [" ", make("small", {}, "required")] : [])],
    [typeOf(one)],
    [one.default === undefined || one.default === null
      ? "" : make("code", {}, JSON.stringify(one.default))],
    words(one.description),
  ];
  const heads = ["Field", "Type", "Default", "Meaning"];
  const shown = [table(heads, rows.filter(([, one]) => !refused(one)).map(row))];
  const others = rows.filter(([, one]) => refused(one)).map(row);
  if (others.length) {
    shown.push(make("details", {},
      make("summary", {}, `${others.length} fields that are known and not honoured`),
      table(heads, others)));
  }
  return shown;
}

function body(schema) {
  const whole = resolved(schema);
  const inner = [...structs(whole)].map(([ref, one]) => make("details", {},
    make("summary", {}, make("code", {}, ref.split("/").pop())), ...fields(one)));
  return [...fields(whole), ...inner];
}

function replies(operation) {
  const rows = Object.entries(operation.responses).map(([status, item]) => {
    const reply = resolved(item);
    const kinds = Object.entries(reply.content || {}).map(([media, one]) =>
      `${media}: ${typeOf(one.schema)}`);
    return [[make("code", {}, status)], words(reply.description), [kinds.join("; ")],
      [Object.keys(reply.headers || {}).join(", ")]];
  });
  return table(["Status", "Meaning", "Body", "Headers"], rows);
}

// Trying.

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function curl(method, url, text) {
  const parts = ["curl"];
  if (text !== null && /"stream"\s*:\s*true/.test(text)) parts.push("-N");
  parts.push(quoted(url));
  if (method !== "GET") parts.push("-X", method);
  if (keyField.value) parts.push('-H "Authorization: Bearer $HEADRACE_API_KEY"');
  if (text !== null) parts.push("-H 'Content-Type: application/json'", "-d", quoted(text));
  return parts.join(" ");
}

// The text of an event of a stream: what a person wants to read of it.
function textOf(event) {
  return (event.choices || []).map((one) => (one.delta ? one.delta.content : one.text) || "").join("");
}

async function show(response, started, out) {
  const seconds = () => `${((performance.now() - started) / 1000).toFixed(3)} s`;
  const first = seconds();
  const facts = ["x-request-id", "x-ignored-params", "retry-after"]
    .filter((name) => response.headers.has(name))
    .map((name) => `${name}: ${response.headers.get(name)}`);
  const status = `${response.status} ${response.statusText}`.trim();
  out.status.className = response.ok ? "good" : "bad";
  out.status.textContent = [status, `head after ${first}`, ...facts].join(" · ");
  const events = (response.headers.get("content-type") || "").startsWith("text/event-stream");
  out.text.hidden = !events;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    rest += value;
    if (!events) continue;
    const whole = rest.split("\n\n");
    rest = whole.pop();
    for (const event of whole) {
      out.body.append(`${event}\n\n`);
      if (!event.startsWith("data: {")) continue;
      out.text.append(textOf(JSON.parse(event.slice(6))));
    }
  }
  if (!events) {
    let text = rest;
    try { text = JSON.stringify(JSON.parse(rest), null, 2); } catch { /* it is no JSON */ }
    out.body.textContent = text;
  }
  out.status.append(` · ended after ${seconds()}`);
}

function tryIt(method, path, operation) {
  const id = operation.operationId;
  const media = operation.requestBody && operation.requestBody.content["application/json"];
  const text = media && make("textarea", { id: `${id}-body`, spellcheck: "false" });
  if (text) text.value = JSON.stringify(media.example || {}, null, 2);
  const places = operation.parameters.map(resolved).filter((one) => one.in === "path");
  const inputs = places.map((one) => make("input", { id: `${id}-${one.name}`, name: one.name }));
  const out = {
    status: make("p", { role: "status" }),
    text: make("pre", { hidden: "", "aria-label": "Text so far" }),
    body: make("pre", { "aria-label": "Reply" }),
  };
  const line = make("code");
  const url = () => inputs.reduce((at, one) =>
    at.replace(`{${one.name}}`, encodeURIComponent(one.value).replaceAll("%2F", "/")),
  new URL(path.slice(1), document.baseURI).href.replaceAll("%7B", "{").replaceAll("%7D", "}"));
  const update = () => { line.textContent = curl(method, url(), text ? text.value : null); };
  const stop = make("button", { type: "button", class: "second", disabled: "" }, "Stop");
  const send = make("button", {}, "Send");

  async function submit(event) {
    event.preventDefault();
    const control = new AbortController();
    stop.onclick = () => control.abort();
    [send.disabled, stop.disabled] = [true, false];
    out.text.textContent = out.body.textContent = "";
    out.status.className = "";
    out.status.textContent = "Sent.";
    const headers = {};
    if (keyField.value) headers.Authorization = `Bearer ${keyField.value}`;
    if (text) headers["Content-Type"] = "application/json";
    try {
      const started = performance.now();
      const options = { method, headers, signal: control.signal };
      if (text) options.body = text.value;
      await show(await fetch(url(), options), started, out);
    } catch (failure) {
      out.status.className = "bad";
      out.status.textContent = control.signal.aborted ? "Stopped." : `No reply: ${failure.message}`;
    }
    [send.disabled, stop.disabled] = [false, true];
  }

  const copy = make("button", { type: "button", class: "second", onclick: async () => {
    await navigator.clipboard.writeText(line.textContent);
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  } }, "Copy");
  const form = make("form", { onsubmit: submit, oninput: update });
  inputs.forEach((one, at) => form.append(make("label", { for: one.id }, places[at].name), one));
  if (text) form.append(make("label", { for: text.id }, "Body (JSON)"), text);
  form.append(make("div", { class: "row" }, send, stop),
    make("div", { class: "row" }, make("span", {}, "As a command:"), copy), make("pre", {}, line));
  keyField.addEventListener("input", update);
  update();
  return [make("h4", {}, "Try it"), form, out.status, out.text, out.body];
}

// The page.

function section(method, path, operation) {
  const inside = make("div");
  const details = make("details", { class: "operation", id: `op-${operation.operationId}` },
    make("summary", {}, make("h3", {}, make("span", { class: "method" }, method),
      make("span", { class: "path" }, path)), " ", operation.summary), inside);
  const fill = () => {
    if (!details.open || inside.hasChildNodes()) return;
    inside.append(make("p", {}, ...words(operation.description)));
    if (operation.security && operation.security.length) {
      inside.append(make("p", {}, "Needs a key: ", make("code", {}, "Authorization: Bearer KEY")));
    }
    const media = operation.requestBody && operation.requestBody.content["application/json"];
    if (media) inside.append(make("h4", {}, "Fields"), ...body(media.schema));
    inside.append(make("h4", {}, "Replies"), replies(operation), ...tryIt(method, path, operation));
  };
  details.addEventListener("toggle", fill);
  return details;
}

function open() {
  const wanted = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (wanted && wanted.tagName === "DETAILS") {
    wanted.open = true;
    wanted.scrollIntoView();
  }
}

async function load() {
  const headers = keyField.value ? { Authorization: `Bearer ${keyField.value}` } : {};
  const response = await fetch("openapi.json", { headers });
  if (response.status === 401) {
    state.textContent = "This server asks for a key.";
    keyField.focus();
    return;
  }
  if (!response.ok) throw new Error(`openapi.json: ${response.status}`);
  api = await response.json();
  document.getElementById("version").textContent = api.info.version;
  document.getElementById("about").replaceChildren(...words(api.info.description));
  const [contents, main] = ["contents", "operations"].map((id) => document.getElementById(id));
  contents.replaceChildren();
  main.replaceChildren();
  const all = Object.entries(api.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, one]) => [method.toUpperCase(), path, one]));
  for (const { name } of api.tags) {
    const own = all.filter(([, , one]) => one.tags.includes(name));
    main.append(make("h2", {}, name), ...own.map((one) => section(...one)));
    contents.append(make("b", {}, name), make("ul", {}, ...own.map(([, path, one]) =>
      make("li", {}, make("a", { href: `#op-${one.operationId}` }, path)))));
  }
  state.textContent = "";
  open();
}

function start() {
  load().catch((failure) => {
    state.className = "bad";
    state.textContent = `The document could not be loaded: ${failure.message}`;
  });
}

document.getElementById("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  start();
});
window.addEventListener("hashchange", open);
start();
