// What this browser keeps: the conversation and the settings until they are cleared, the key until
// the tab is closed.
//
// A message is {role, content}. An assistant's also has `reasoning`, `calls` ([{id, name,
// arguments}]), `schema` (that it was held to), `finish`, `figures` (what it took), and `error` or
// `stopped` where it is not whole; a tool's has `id` and `name` of its call.

const STORED = "headrace-chat";
const STORED_KEY = "headrace-key";
export const STORED_SCHEME = "headrace-chat-scheme";

const fresh = () => ({
  model: "",
  system: "",
  parameters: {},
  stop: "",
  effort: "",
  more: "",
  tools: { on: false, text: "", choice: "auto" },
  schema: { on: false, text: "", at_once: true },
  logprobs: { on: false, rivals: "5" },
  messages: [],
});

function load() {
  const state = fresh();
  try {
    const kept = JSON.parse(localStorage.getItem(STORED)) || {};
    for (const [name, value] of Object.entries(kept)) {
      if (!(name in state) || typeof value !== typeof state[name]) continue;
      if (Array.isArray(state[name]) !== Array.isArray(value)) continue;
      const isObject = typeof value === "object" && !Array.isArray(value);
      state[name] = isObject ? { ...state[name], ...value } : value;
    }
  } catch {
    /* nothing is kept, or nothing that can be read */
  }
  return state;
}

export const state = load();

// Whether it was kept: a browser has some 5 MB for each address.
export function save() {
  try {
    localStorage.setItem(STORED, JSON.stringify(state));
    return true;
  } catch {
    return false;
  }
}

export const key = {
  get: () => sessionStorage.getItem(STORED_KEY) || "",
  set: (value) =>
    value ? sessionStorage.setItem(STORED_KEY, value) : sessionStorage.removeItem(STORED_KEY),
};

// What is too large to keep: an answer's log probabilities, and its request and events as sent.
const exchanges = new WeakMap();
export const exchangeOf = (message) => exchanges.get(message);
export const keepExchange = (message, exchange) => exchanges.set(message, exchange);
