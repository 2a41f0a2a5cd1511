// Fields of sampling parameters: an empty field sends nothing, so that the model's own value holds.

import { field, h } from "./dom.js";

const number = (label, limits) => ({ label, limits: { type: "number", ...limits } });

export const PARAMETERS = {
  temperature: number("Temperature", { step: "any", min: 0 }),
  max_tokens: number("Max tokens", { step: 1, min: 1 }),
  top_p: number("Top p", { step: "any", min: 0, max: 1 }),
  top_k: number("Top k", { step: 1, min: -1 }),
  min_p: number("Min p", { step: "any", min: 0, max: 1 }),
  seed: number("Seed", { step: 1, placeholder: "random" }),
  thinking_token_budget: number("Reasoning tokens", { step: 1, min: 0, placeholder: "no limit" }),
};

// An input that keeps what is typed in kept[name].
export function bound(kept, name, attributes, changed = () => {}) {
  const input = h(attributes.rows ? "textarea" : "input", {
    ...attributes,
    value: kept[name] ?? "",
    oninput: () => {
      kept[name] = input.value;
      changed();
    },
  });
  return input;
}

// defaults: by parameter, for the placeholders; what is not known there reads "default". beside: a
// field that stands before these.
export function parameterFields(kept, names, { defaults = {}, changed, beside } = {}) {
  return h(
    "div",
    { class: "fields" },
    beside,
    names.map((name) => {
      const { label, limits } = PARAMETERS[name];
      const placeholder = defaults[name] === undefined ? "default" : String(defaults[name]);
      return field(label, bound(kept, name, { placeholder, ...limits }, changed));
    }),
  );
}

export function moreField(kept, changed) {
  const attributes = {
    rows: 2,
    spellcheck: "false",
    class: "code",
    placeholder: '{"reasoning_effort": "low"}',
  };
  return field("More (JSON)", bound(kept, "more", attributes, changed));
}

// The fields of a request. Throws SyntaxError where "More" is not an object.
export function readParameters(kept, names) {
  const found = {};
  for (const name of names) if (kept[name]) found[name] = Number(kept[name]);
  if (!kept.more || !kept.more.trim()) return found;
  const more = JSON.parse(kept.more);
  if (more === null || typeof more !== "object" || Array.isArray(more))
    throw new SyntaxError("an object is expected");
  return { ...found, ...more };
}
