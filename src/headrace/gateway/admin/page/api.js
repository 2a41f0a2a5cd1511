// The admin API. The key is in this tab's session storage alone and goes out in one header.

const STORED = "headrace-admin-key";

export class ApiError extends Error {
  constructor(status, message, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export const key = {
  get: () => sessionStorage.getItem(STORED),
  set: (value) => sessionStorage.setItem(STORED, value),
  forget: () => sessionStorage.removeItem(STORED),
};

export const locked = new EventTarget();

async function send(method, path, { query, body, signal } = {}) {
  const given = Object.entries(query || {}).filter(
    ([, one]) => one !== undefined && one !== null && one !== "",
  );
  const search = given.length ? `?${new URLSearchParams(given)}` : "";
  const headers = {};
  if (key.get()) headers.authorization = `Bearer ${key.get()}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  let reply;
  try {
    reply = await fetch(`api/${path}${search}`, {
      method,
      headers,
      signal,
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(
      0,
      "The gateway cannot be reached. It may have stopped; the page tries again.",
      "unreachable",
    );
  }
  if (reply.ok) return reply;
  let found = {};
  try {
    found = await reply.json();
  } catch {
    /* it is no JSON */
  }
  const error =
    found.error && typeof found.error === "object" ? found.error : { message: found.error };
  const told = new ApiError(reply.status, error.message || `HTTP ${reply.status}`, error.code);
  if (reply.status === 401) locked.dispatchEvent(new CustomEvent("locked", { detail: told }));
  throw told;
}

export const get = async (path, query, signal) =>
  (await send("GET", path, { query, signal })).json();
export const post = async (path, body = undefined) => (await send("POST", path, { body })).json();
export const patch = async (path, body) => (await send("PATCH", path, { body })).json();
export const remove = async (path) => (await send("DELETE", path)).json();
export const file = async (path, query) => (await send("GET", path, { query })).blob();

// Events of a stream, as they come, until it ends or `signal` does.
export async function* events(method, path, { query, body, signal } = {}) {
  const reply = await send(method, path, { query, body, signal });
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += value;
      const whole = rest.split("\n\n");
      rest = whole.pop();
      for (const one of whole) if (one.startsWith("data: ")) yield JSON.parse(one.slice(6));
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
