// The admin API. The key is in this tab's session storage alone and goes out in one header.

import { ApiError, errorOf } from "./shared/api_error.js";
import { eventData } from "./shared/event_stream.js";

const STORED = "headrace-admin-key";

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
      { code: "unreachable" },
    );
  }
  if (reply.ok) return reply;
  const told = await errorOf(reply);
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
  for await (const data of eventData(reply)) yield JSON.parse(data);
}
