// The panel of settings: what every request has beside the conversation.

import { field, h, select, unique } from "./shared/dom.js";
import { bound, moreField, parameterFields } from "./shared/parameters.js";
import { REASONING, SAMPLING } from "./request.js";
import { key, save, state } from "./store.js";

// As the server takes them.
const EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
// Where the settings take the place of the conversation, as in style/frame.css.
const NARROW_PX = 700;
const CHOICES = [
  ["auto", "The model decides"],
  ["required", "At least one call"],
  ["none", "No calls"],
];
const EXAMPLE_TOOLS = [
  {
    type: "function",
    function: {
      name: "get_weather",
      description: "The weather of a city at this moment.",
      parameters: {
        type: "object",
        properties: { city: { type: "string", minLength: 1 } },
        required: ["city"],
        additionalProperties: false,
      },
    },
  },
];
const EXAMPLE_SCHEMA = {
  type: "object",
  properties: {
    name: { type: "string" },
    arguments: { type: "array", items: { type: "string" }, maxItems: 4 },
    pure: { type: "boolean" },
  },
  required: ["name", "arguments", "pure"],
  additionalProperties: false,
};

// Open as it was where it is drawn again.
function section(id, title, open, ...content) {
  const isOpen = document.getElementById(id)?.open ?? open;
  const inside = h("div", { class: "inside" }, content);
  return h("details", { id, open: isOpen }, h("summary", {}, title), inside);
}

// A checkbox that keeps kept[name].
function check(label, kept, changed, id = unique("check"), name = "on") {
  const input = h("input", {
    type: "checkbox",
    id,
    checked: kept[name],
    onchange: () => {
      kept[name] = input.checked;
      changed();
    },
  });
  return h("div", { class: "field check" }, input, h("label", { for: input.id }, label));
}

// A field of JSON that says where it is wrong as soon as it is left. fill: puts the example there.
function jsonField(id, label, kept, help, example, changed) {
  const problem = h("small", { class: "bad", id: `${id}-problem`, role: "alert" });
  const placeholder = JSON.stringify(example);
  const attributes = { rows: 8, spellcheck: "false", class: "code", id, placeholder };
  const input = bound(kept, "text", attributes, changed);
  const judge = () => {
    problem.textContent = "";
    try {
      if (input.value.trim()) JSON.parse(input.value);
    } catch (error) {
      problem.textContent = error.message;
    }
    input.setAttribute("aria-invalid", String(Boolean(problem.textContent)));
  };
  input.addEventListener("change", judge);
  const fill = h(
    "button",
    {
      type: "button",
      class: "quiet example",
      onclick: () => {
        input.value = JSON.stringify(example, null, 2);
        kept.text = input.value;
        kept.on = document.getElementById(`${id}-on`).checked = true;
        judge();
        changed();
      },
    },
    "Insert an example",
  );
  const box = field(label, input, help);
  input.setAttribute("aria-describedby", `${id}-help ${problem.id}`);
  box.append(problem, h("div", { class: "row" }, fill));
  return box;
}

// model: an entry of /v1/models, or undefined while none is known. onKey: after the key changed.
export function drawSettings(root, model, onKey) {
  const changed = () => {
    save();
    marks();
  };
  const bind = (name, attributes) => bound(state, name, attributes, changed);
  const effort = select(
    [["", "Default"], ...EFFORTS.map((name) => [name, name])],
    state.effort,
    () => {
      state.effort = effort.value;
      changed();
    },
  );
  const choice = select(CHOICES, state.tools.choice, () => {
    state.tools.choice = choice.value;
    changed();
  });
  const keyInput = h("input", {
    type: "password",
    autocomplete: "off",
    spellcheck: "false",
    id: "key",
  });
  keyInput.value = key.get();
  const keyForm = h(
    "form",
    {
      onsubmit: (event) => {
        event.preventDefault();
        key.set(keyInput.value.trim());
        onKey();
      },
    },
    field("Key", keyInput, "Only for servers that require one. It stays in this tab."),
    h("button", {}, "Use this key"),
  );
  const parts = {
    system: section(
      "system-part",
      "System prompt",
      true,
      field("Instructions to the model", bind("system", { rows: 4, id: "system" })),
    ),
    sampling: section(
      "sampling-part",
      "Sampling",
      true,
      h("p", { class: "quiet" }, "An empty field leaves the choice to the model."),
      parameterFields(state.parameters, SAMPLING, {
        defaults: model?.default_sampling_params,
        changed,
      }),
      field(
        "Stop",
        bind("stop", { rows: 2, class: "code", placeholder: "none" }),
        "Texts that end the answer, each on its own line.",
      ),
      parameterFields(state.parameters, REASONING, {
        changed,
        beside: field("Reasoning effort", effort),
      }),
      moreField(state, changed),
    ),
    tools: section(
      "tools-part",
      "Tools",
      state.tools.on,
      check("Offer tools to the model", state.tools, changed, "tools-text-on"),
      jsonField(
        "tools-text",
        "Tools (JSON)",
        state.tools,
        "A list as in the API, or of functions alone. You play the tools: type what a call returns.",
        EXAMPLE_TOOLS,
        changed,
      ),
      field("Choice", choice),
    ),
    schema: section(
      "schema-part",
      "Answer's schema",
      state.schema.on,
      check("Answer in JSON of this schema", state.schema, changed, "schema-text-on"),
      jsonField(
        "schema-text",
        "JSON Schema",
        state.schema,
        "Sent as response_format. Every answer is held to it, whatever the model would write.",
        EXAMPLE_SCHEMA,
        changed,
      ),
      check("Answer at once, without reasoning", state.schema, changed, "at-once", "at_once"),
      h(
        "small",
        { class: "quiet" },
        "The form begins after the model's thoughts, which may take all tokens. A number of " +
          "reasoning tokens in Sampling goes before this.",
      ),
    ),
    logprobs: section(
      "logprobs-part",
      "Log probabilities",
      state.logprobs.on,
      check("Colour tokens by their probability", state.logprobs, changed, "logprobs-on"),
      field(
        "Rivals of each token",
        bound(state.logprobs, "rivals", { type: "number", min: 0, max: 20, step: 1 }, changed),
      ),
    ),
    key: section("key-part", "API key", Boolean(key.get()), keyForm),
  };
  // A folded section shows that it has an effect.
  function marks() {
    const used = {
      system: state.system.trim(),
      sampling:
        state.stop || state.effort || state.more || Object.values(state.parameters).some(Boolean),
      tools: state.tools.on,
      schema: state.schema.on,
      logprobs: state.logprobs.on,
      key: key.get(),
    };
    for (const [name, part] of Object.entries(parts))
      part.classList.toggle("used", Boolean(used[name]));
  }
  marks();
  root.replaceChildren(
    h("div", { class: "head" }, h("h2", {}, "Settings"), closeButton()),
    ...Object.values(parts),
  );
}

const closeButton = () =>
  h(
    "button",
    { type: "button", class: "quiet narrow", onclick: () => toggleSettings(false) },
    "Close",
  );

function showSettings(open) {
  document.body.classList.toggle("with-settings", open);
  document.getElementById("settings-button").setAttribute("aria-expanded", String(open));
}

export function toggleSettings(open) {
  showSettings(open);
  if (open) document.querySelector("#settings summary").focus();
  else document.getElementById("settings-button").focus();
}

// What a question for a part of the settings may be.
const QUESTIONS = {
  schema: "Describe the function zip.",
  tools: "What is the weather in Paris?",
  logprobs: "What does zip do in Python?",
};

// Turns on a part of the settings, with its example where it has a field that is empty, and off the
// others that may be tried, which would change its answer; returns a question to try it with.
export function tryPart(name) {
  const part = document.getElementById(`${name}-part`);
  const text = part.querySelector("textarea");
  showSettings(innerWidth > NARROW_PX);
  part.open = true;
  if (text && !text.value.trim()) part.querySelector("button.example").click();
  const on = part.querySelector("[type=checkbox]");
  if (!on.checked) on.click();
  for (const other of Object.keys(QUESTIONS).filter((other) => other !== name)) {
    const box = document.querySelector(`#${other}-part [type=checkbox]`);
    if (box.checked) box.click();
  }
  part.scrollIntoView({ block: "nearest" });
  return QUESTIONS[name];
}

// Opens what holds a control and puts the focus there.
export function reveal(id) {
  const control = document.getElementById(id);
  if (!control) return;
  showSettings(true);
  control.closest("details").open = true;
  control.focus();
}
