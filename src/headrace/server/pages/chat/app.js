// The chat page: its head, the field for the next message, and what is loaded at the start.

import { confirm, h, select } from "./shared/dom.js";
import { count } from "./shared/format.js";
import { schemeSelect } from "./shared/scheme.js";
import { models } from "./client.js";
import { Conversation } from "./conversation.js";
import { drawSettings, reveal, toggleSettings, tryPart } from "./settings.js";
import { save, state, STORED_SCHEME } from "./store.js";

const RETRY_MS = 2000;
const at = (id) => document.getElementById(id);

const send = h("button", { class: "primary" }, "Send");
const stop = h(
  "button",
  { type: "button", hidden: true, onclick: () => conversation.stop() },
  "Stop",
);
const question = h("textarea", {
  id: "question",
  rows: 1,
  dir: "auto",
  placeholder: "Message",
  "aria-label": "Message",
  autocomplete: "off",
});
const status = h("p", { class: "status", role: "status" });

const conversation = new Conversation(at("conversation"), {
  onTry: (part) => {
    question.value = tryPart(part);
    grow();
    if (question.checkVisibility()) question.focus();
  },
  onRunning: (running) => {
    const free = [document.body, stop].includes(document.activeElement);
    [send.hidden, stop.hidden] = [running, !running];
    // Whoever is busy elsewhere on the page stays there.
    if (!running && free) question.focus({ preventScroll: true });
    context();
  },
  onFigures: () => context(),
  onRefused: (status_) => {
    if (status_ === 401) reveal("key");
  },
});

let known = [];
const chosen = () => known.find(({ id }) => id === state.model) || known[0];

// How much of the context the conversation takes, by its last answer.
function context() {
  const last = state.messages.findLast(({ figures }) => figures?.prompt);
  const most = chosen()?.max_model_len;
  if (!most) return;
  const used = last ? last.figures.prompt + (last.figures.tokens || 0) : 0;
  status.textContent = `Context: ${count(used)} of ${count(most)} tokens`;
  status.classList.toggle("warn", used > 0.9 * most);
}

// The field is as high as its text, up to a third of the window.
function grow() {
  question.style.height = "auto";
  question.style.height = `${Math.min(question.scrollHeight, innerHeight / 3)}px`;
}

function submit(event) {
  event?.preventDefault();
  const text = question.value;
  if (!text.trim() || !conversation.say(text)) return;
  question.value = "";
  grow();
}

question.addEventListener("input", grow);
question.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  submit();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
  if (conversation.running) conversation.stop();
  else if (event.target.closest?.("#settings")) toggleSettings(false);
});

function drawModel() {
  const model = chosen();
  const names = known.map(({ id }) => [id, id]);
  const name = select(names, model.id, () => {
    state.model = name.value;
    save();
    drawModel();
  });
  name.setAttribute("aria-label", "Model");
  at("model").replaceChildren(names.length > 1 ? name : h("span", {}, model.id));
  document.title = `${model.id} · headrace`;
  drawSettings(at("settings"), model, load);
  context();
}

function clear() {
  if (!state.messages.length) return;
  const words = "Its messages are deleted from this browser. Settings stay.";
  confirm("Start a new conversation?", words, "Delete and start", () => {
    conversation.clear();
    context();
    question.focus();
  });
}

// Repeated while the server starts or cannot be reached.
async function load() {
  try {
    known = await models();
  } catch (error) {
    status.textContent = error.message;
    status.classList.toggle("bad", error.status !== 503);
    if (error.status === 401) reveal("key");
    else if (error.status === 503 || error.status === 0)
      setTimeout(load, 1000 * (error.retryAfter || 0) || RETRY_MS);
    return;
  }
  status.classList.remove("bad");
  if (!known.some(({ id }) => id === state.model)) state.model = "";
  drawModel();
}

at("tools").append(
  h("button", { type: "button", onclick: clear }, "New"),
  h(
    "button",
    {
      type: "button",
      id: "settings-button",
      "aria-expanded": "false",
      "aria-controls": "settings",
      onclick: () => toggleSettings(!document.body.classList.contains("with-settings")),
    },
    "Settings",
  ),
  schemeSelect(STORED_SCHEME),
  h("a", { href: "docs" }, "API"),
);
at("composer").append(
  conversation.latest,
  h("form", { onsubmit: submit }, question, h("div", { class: "sends" }, send, stop)),
  h("div", { class: "row foot" }, status, h("small", {}, "Enter sends, Shift+Enter starts a line")),
);
// An answer that is still arriving is kept as far as it is there.
addEventListener("pagehide", save);
document.body.classList.toggle("with-settings", innerWidth >= 1000);
drawSettings(at("settings"), undefined, load);
at("settings-button").setAttribute("aria-expanded", String(innerWidth >= 1000));
question.focus();
conversation.toEnd();
load();
